"""RMS norm over channels, of float32 rows, and its gradients.

r = (mean s² + ε)^{−1/2},  y = s r ∘ w
ds = r (g − n mean(g ∘ n))  with n = s r and g = dy ∘ w,   dw = Σ_rows dy ∘ n

The rows of a scan may be as large as float32 goes, and then s², g ∘ s or r² are none: gradients are
made of n, which is of the order of one whatever s is.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["channels", "eps"])
def rms_norm(s, weight, y, scale, channels, eps, BLOCK: tl.constexpr):
    """One row; `scale` (rows,) keeps r. Squares are summed lane by lane, then across lanes.

    Where their sum overflows, squares of 2**-80 of the values give r: 3.4e38 becomes 2.8e14, and ε
    is then too small to matter.
    """
    row = tl.program_id(0).to(tl.int64)
    squares, reduced = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, channels, BLOCK):
        channel = start + tl.arange(0, BLOCK)
        values = tl.load(s + row * channels + channel, mask=channel < channels, other=0.0)
        squares += values * values
        small = values * 8.271806125530277e-25
        reduced += small * small
    total = tl.sum(squares, axis=0)
    r = 1.0 / tl.sqrt_rn(total / channels + eps)
    from_reduced = 8.271806125530277e-25 / tl.sqrt_rn(tl.sum(reduced, axis=0) / channels)
    r = tl.where(total == float("inf"), from_reduced, r)
    tl.store(scale + row, r)
    for start in range(0, channels, BLOCK):
        channel = start + tl.arange(0, BLOCK)
        inside = channel < channels
        values = tl.load(s + row * channels + channel, mask=inside, other=0.0)
        gain = tl.load(weight + channel, mask=inside, other=0.0).to(tl.float32)
        out = values * r * gain
        tl.store(y + row * channels + channel, out.to(y.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["channels", "dy_batch", "dy_time", "length"])
def rms_norm_input_gradient(
    s, weight, scale, dy, ds, dy_batch, dy_time, length, channels, BLOCK: tl.constexpr
):
    """ds of one row, float32."""
    row = tl.program_id(0).to(tl.int64)
    given = dy + row // length * dy_batch + row % length * dy_time
    products = tl.zeros((BLOCK,), tl.float32)
    r = tl.load(scale + row)
    for start in range(0, channels, BLOCK):
        channel = start + tl.arange(0, BLOCK)
        inside = channel < channels
        values = tl.load(s + row * channels + channel, mask=inside, other=0.0) * r
        gain = tl.load(weight + channel, mask=inside, other=0.0).to(tl.float32)
        products += values * gain * tl.load(given + channel, mask=inside, other=0.0).to(tl.float32)
    pull = tl.sum(products, axis=0) / channels
    for start in range(0, channels, BLOCK):
        channel = start + tl.arange(0, BLOCK)
        inside = channel < channels
        values = tl.load(s + row * channels + channel, mask=inside, other=0.0) * r
        gain = tl.load(weight + channel, mask=inside, other=0.0).to(tl.float32)
        dout = tl.load(given + channel, mask=inside, other=0.0).to(tl.float32)
        tl.store(ds + row * channels + channel, r * (gain * dout - values * pull), mask=inside)


@triton.jit(do_not_specialize=["channels", "dy_batch", "dy_time", "length", "rows"])
def rms_norm_weight_gradient(
    s, scale, dy, part, dy_batch, dy_time, length, rows, channels,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dw over ROWS rows for one block of channels; `part` is (row blocks, channels)."""
    blocks = tl.cdiv(channels, BLOCK)
    channel = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    own = (tl.program_id(0) // blocks).to(tl.int64)
    inside = channel < channels
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(own * ROWS, tl.minimum(own * ROWS + ROWS, rows)):
        given = dy + row // length * dy_batch + row % length * dy_time
        values = tl.load(s + row * channels + channel, mask=inside, other=0.0)
        dout = tl.load(given + channel, mask=inside, other=0.0).to(tl.float32)
        total += dout * (values * tl.load(scale + row))
    tl.store(part + own * channels + channel, total, mask=inside)
