"""C1: the selective scan, from left to right in time, with its input convolved first if asked.

    h_t = e^{Δ_t A} ∘ h_{t−1} + (Δ_t u_t) B_tᵀ,   y_t = h_t C_t + D ∘ u_t,   Δ = softplus(δ)

A program holds a tile (BLOCK channels, BLOCK_STATE) of the state in float32 registers. With TAPS
= 0, u is what lies at `x`; otherwise u = SiLU(bias + Σ_j w_j x_{t+j}), over TAPS tokens of `x`.
"""

import triton
import triton.language as tl

from ..device import softplus

FORWARD_SIZES = (
    *("x_batch", "x_time", "delta_batch", "delta_time", "b_batch", "b_time", "c_batch", "c_time"),
    *("length", "channels", "state_size", "segment"),
)
"""Arguments of which no special kernel is made: strides in elements, and sizes."""


@triton.jit
def step_size(row, channel, present, SOFTPLUS: tl.constexpr):
    """Δ and the number it comes from, (BLOCK,); both 0 at channels that are not there."""
    raw = tl.load(row + channel, mask=present, other=0.0).to(tl.float32)
    step = raw
    if SOFTPLUS:
        step = tl.where(present, softplus(raw), 0.0)
    return step, raw


@triton.jit
def window(row, x_time, channel, present, TAPS: tl.constexpr, BLOCK_TAPS: tl.constexpr):
    """The TAPS tokens of x that one output sees, (BLOCK_TAPS, BLOCK)."""
    tap = tl.arange(0, BLOCK_TAPS)
    at = row + tap[:, None].to(tl.int64) * x_time + channel[None, :]
    inside = (tap < TAPS)[:, None] & present[None, :]
    return tl.load(at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def tap_weights(taps, channel, present, TAPS: tl.constexpr, BLOCK_TAPS: tl.constexpr):
    """Weights (channels, TAPS) as (BLOCK_TAPS, BLOCK)."""
    tap = tl.arange(0, BLOCK_TAPS)
    at = taps + channel[None, :].to(tl.int64) * TAPS + tap[:, None]
    inside = (tap < TAPS)[:, None] & present[None, :]
    return tl.load(at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def convolved(seen, weights, offset, TAPS: tl.constexpr, BLOCK_TAPS: tl.constexpr):
    """The convolution at one token, (BLOCK,). A tap that is padding counts nothing, even at NaN."""
    tap = tl.arange(0, BLOCK_TAPS)
    return offset + tl.sum(tl.where((tap < TAPS)[:, None], seen * weights, 0.0), axis=0)


@triton.jit
def scan_input(
    row, x_time, channel, present, weights, offset, TAPS: tl.constexpr, BLOCK_TAPS: tl.constexpr
):
    """u at one token, (BLOCK,)."""
    if TAPS == 0:
        u = tl.load(row + channel, mask=present, other=0.0).to(tl.float32)
    else:
        seen = window(row, x_time, channel, present, TAPS, BLOCK_TAPS)
        sum_ = convolved(seen, weights, offset, TAPS, BLOCK_TAPS)
        u = sum_ / (1.0 + tl.exp(-sum_))
    return u


@triton.jit(do_not_specialize=FORWARD_SIZES)
def scan_forward(
    x, delta, a, b, c, skip, taps, bias, entry, y, checkpoint,
    x_batch, x_time, delta_batch, delta_time, b_batch, b_time, c_batch, c_time,
    length, channels, state_size, segment,
    SOFTPLUS: tl.constexpr, TAPS: tl.constexpr, PARALLEL: tl.constexpr, KEEP: tl.constexpr,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, BLOCK_STATE: tl.constexpr, BLOCK_TAPS: tl.constexpr,
):  # fmt: skip
    """Outputs of one segment, and the state before each of its chunks.

    `entry` (batch, segments, channels, state) is read if PARALLEL, else the state starts at zero;
    `checkpoint` (batch, chunks, channels, state) is written if KEEP.
    """
    blocks, segments = tl.cdiv(channels, BLOCK), tl.cdiv(length, segment)
    program = tl.program_id(0)
    channel = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    piece = program // blocks % segments
    batch = (program // blocks // segments).to(tl.int64)
    state = tl.arange(0, BLOCK_STATE)
    present, width = channel < channels, state < state_size
    inside = present[:, None] & width[None, :]
    tile = channel[:, None].to(tl.int64) * state_size + state[None, :]
    plane = channels.to(tl.int64) * state_size
    rates = tl.load(a + tile, mask=inside, other=0.0).to(tl.float32)
    direct = tl.load(skip + channel, mask=present, other=0.0).to(tl.float32)
    weights, offset = 0.0, 0.0
    if TAPS > 0:
        weights = tap_weights(taps, channel, present, TAPS, BLOCK_TAPS)
        offset = tl.load(bias + channel, mask=present, other=0.0).to(tl.float32)
    h = tl.zeros((BLOCK, BLOCK_STATE), tl.float32)
    if PARALLEL:
        h = tl.load(entry + (batch * segments + piece) * plane + tile, mask=inside, other=0.0)
    end = tl.minimum(piece * segment + segment, length)
    for start in range(piece * segment, end, CHUNK):
        if KEEP:
            at = batch * tl.cdiv(length, CHUNK) + start // CHUNK
            tl.store(checkpoint + at * plane + tile, h, mask=inside)
        for token in range(start, tl.minimum(start + CHUNK, end)):
            t = token.to(tl.int64)
            row = x + batch * x_batch + t * x_time
            u = scan_input(row, x_time, channel, present, weights, offset, TAPS, BLOCK_TAPS)
            row = delta + batch * delta_batch + t * delta_time
            step, _ = step_size(row, channel, present, SOFTPLUS)
            row = b + batch * b_batch + t * b_time
            written = tl.load(row + state, mask=width, other=0.0).to(tl.float32)
            row = c + batch * c_batch + t * c_time
            read = tl.load(row + state, mask=width, other=0.0).to(tl.float32)
            h = tl.exp(step[:, None] * rates) * h + (step * u)[:, None] * written[None, :]
            h = tl.where(inside, h, 0.0)
            out = tl.sum(h * read[None, :], axis=1) + direct * u
            row = y + (batch * length + t) * channels
            tl.store(row + channel, out.to(y.dtype.element_ty), mask=present)


@triton.jit(do_not_specialize=FORWARD_SIZES)
def segment_forward(
    x, delta, a, b, taps, bias, decay, inner,
    x_batch, x_time, delta_batch, delta_time, b_batch, b_time,
    length, channels, state_size, segment,
    SOFTPLUS: tl.constexpr, TAPS: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_STATE: tl.constexpr, BLOCK_TAPS: tl.constexpr,
):  # fmt: skip
    """The state at the end of one segment that was entered with zero, and the decay over it.

    Both are (batch, segments, channels, state). The decay is e^{A ΣΔ}: one exponential.
    """
    blocks, segments = tl.cdiv(channels, BLOCK), tl.cdiv(length, segment)
    program = tl.program_id(0)
    channel = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    piece = program // blocks % segments
    batch = (program // blocks // segments).to(tl.int64)
    state = tl.arange(0, BLOCK_STATE)
    present, width = channel < channels, state < state_size
    inside = present[:, None] & width[None, :]
    tile = channel[:, None].to(tl.int64) * state_size + state[None, :]
    plane = channels.to(tl.int64) * state_size
    rates = tl.load(a + tile, mask=inside, other=0.0).to(tl.float32)
    weights, offset = 0.0, 0.0
    if TAPS > 0:
        weights = tap_weights(taps, channel, present, TAPS, BLOCK_TAPS)
        offset = tl.load(bias + channel, mask=present, other=0.0).to(tl.float32)
    h = tl.zeros((BLOCK, BLOCK_STATE), tl.float32)
    elapsed = tl.zeros((BLOCK,), tl.float32)
    for token in range(piece * segment, tl.minimum(piece * segment + segment, length)):
        t = token.to(tl.int64)
        row = x + batch * x_batch + t * x_time
        u = scan_input(row, x_time, channel, present, weights, offset, TAPS, BLOCK_TAPS)
        row = delta + batch * delta_batch + t * delta_time
        step, _ = step_size(row, channel, present, SOFTPLUS)
        row = b + batch * b_batch + t * b_time
        written = tl.load(row + state, mask=width, other=0.0).to(tl.float32)
        h = tl.exp(step[:, None] * rates) * h + (step * u)[:, None] * written[None, :]
        elapsed += step
    at = (batch * segments + piece) * plane + tile
    tl.store(inner + at, h, mask=inside)
    tl.store(decay + at, tl.exp(elapsed[:, None] * rates), mask=inside)
