"""The last step of C6: from the gradient of the convolution's outputs to that of its inputs."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["length", "channels"])
def convolution_input_gradient(
    dsums, taps, dx, length, channels, TAPS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx_s = Σ_j w_j dp_{s−j} at one token of x; taps are (channels, TAPS), dp is dense float32."""
    blocks = tl.cdiv(channels, BLOCK)
    channel = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    token = (tl.program_id(0) // blocks).to(tl.int64)
    tokens = length + TAPS - 1
    batch, s = token // tokens, token % tokens
    inside = channel < channels
    total = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(TAPS):
        there = inside & (s - j >= 0) & (s - j < length)
        at = (batch * length + s - j) * channels + channel
        weight = tl.load(taps + channel.to(tl.int64) * TAPS + j, mask=there, other=0.0)
        total += weight.to(tl.float32) * tl.load(dsums + at, mask=there, other=0.0)
    tl.store(dx + token * channels + channel, total.to(dx.dtype.element_ty), mask=inside)
