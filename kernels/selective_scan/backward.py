"""C2: gradients of the selective scan, from right to left in time.

With a_t = e^{Δ_t A} and dh carried from the right, at each t:

    dC_t = Σ_d dy h_t            dh ← dh + dy C_tᵀ
    γ = dh ∘ a_t ∘ h_{t−1}       β = dh B_t
    dB_t = Σ_d dh (Δ_t u_t)      dΔ_t = Σ_n γ ∘ A + β u_t
    dA += γ Δ_t                  du_t = β Δ_t + D dy_t
    dδ_t = dΔ_t σ(δ_t)           dh ← a_t ∘ dh

The states of one chunk at a time are computed again from its checkpoint into `scratch`. What
several programs add to goes to a part of each program's own, summed later in a fixed order.
"""

import triton
import triton.language as tl

from ..device import softplus_slope
from .forward import convolved, scan_input, step_size, tap_weights, window

BACKWARD_SIZES = (
    *("x_batch", "x_time", "delta_batch", "delta_time", "b_batch", "b_time", "c_batch", "c_time"),
    *("dy_batch", "dy_time", "length", "channels", "state_size", "segment"),
)


@triton.jit(do_not_specialize=BACKWARD_SIZES)
def scan_backward(
    x, delta, a, b, c, skip, taps, bias, dy, border, checkpoint, scratch,
    du, ddelta, da, db, dc, dskip, dtaps, dbias,
    x_batch, x_time, delta_batch, delta_time, b_batch, b_time, c_batch, c_time, dy_batch, dy_time,
    length, channels, state_size, segment,
    SOFTPLUS: tl.constexpr, TAPS: tl.constexpr, PARALLEL: tl.constexpr,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, BLOCK_STATE: tl.constexpr, BLOCK_TAPS: tl.constexpr,
):  # fmt: skip
    """Gradients over one segment.

    `du` and `ddelta` are (batch, length, channels), `du` being the gradient of the convolution if
    there is one. Parts: `da` (batch, segments, channels, state), `dskip` and `dbias` (batch,
    segments, channels), `dtaps` (batch, segments, channels, TAPS), `db` and `dc` (blocks, batch,
    length, state). `border` (batch, segments, channels, state) is the gradient of the state that
    leaves the segment, read if PARALLEL. `scratch` is (programs, CHUNK, BLOCK, BLOCK_STATE).
    """
    blocks, segments = tl.cdiv(channels, BLOCK), tl.cdiv(length, segment)
    program = tl.program_id(0)
    block = program % blocks
    channel = block * BLOCK + tl.arange(0, BLOCK)
    piece = program // blocks % segments
    batch = (program // blocks // segments).to(tl.int64)
    batches = tl.num_programs(0) // blocks // segments
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
        taps_total = tl.zeros((BLOCK_TAPS, BLOCK), tl.float32)
        bias_total = tl.zeros((BLOCK,), tl.float32)
    rates_total = tl.zeros((BLOCK, BLOCK_STATE), tl.float32)
    skip_total = tl.zeros((BLOCK,), tl.float32)
    dh = tl.zeros((BLOCK, BLOCK_STATE), tl.float32)
    own = batch * segments + piece
    if PARALLEL:
        dh = tl.load(border + own * plane + tile, mask=inside, other=0.0)
    local = tl.arange(0, BLOCK)[:, None] * BLOCK_STATE + state[None, :]
    kept = scratch + program.to(tl.int64) * (CHUNK * BLOCK * BLOCK_STATE) + local
    first, end = piece * segment, tl.minimum(piece * segment + segment, length)
    chunks = tl.cdiv(end - first, CHUNK)
    for done in range(chunks):
        start = first + (chunks - 1 - done) * CHUNK
        tokens = tl.minimum(CHUNK, end - start)
        at = batch * tl.cdiv(length, CHUNK) + start // CHUNK
        h = tl.load(checkpoint + at * plane + tile, mask=inside, other=0.0)
        for ahead in range(tokens):
            t = (start + ahead).to(tl.int64)
            tl.store(kept + ahead * (BLOCK * BLOCK_STATE), h)
            row = x + batch * x_batch + t * x_time
            u = scan_input(row, x_time, channel, present, weights, offset, TAPS, BLOCK_TAPS)
            row = delta + batch * delta_batch + t * delta_time
            step, _ = step_size(row, channel, present, SOFTPLUS)
            row = b + batch * b_batch + t * b_time
            written = tl.load(row + state, mask=width, other=0.0).to(tl.float32)
            h = tl.exp(step[:, None] * rates) * h + (step * u)[:, None] * written[None, :]
            h = tl.where(inside, h, 0.0)
        tl.debug_barrier()
        for back in range(tokens):
            ahead = tokens - 1 - back
            t = (start + ahead).to(tl.int64)
            row = x + batch * x_batch + t * x_time
            if TAPS == 0:
                u = tl.load(row + channel, mask=present, other=0.0).to(tl.float32)
            else:
                seen = window(row, x_time, channel, present, TAPS, BLOCK_TAPS)
                sum_ = convolved(seen, weights, offset, TAPS, BLOCK_TAPS)
                gate = 1.0 / (1.0 + tl.exp(-sum_))
                u = sum_ * gate
            row = delta + batch * delta_batch + t * delta_time
            step, raw = step_size(row, channel, present, SOFTPLUS)
            row = b + batch * b_batch + t * b_time
            written = tl.load(row + state, mask=width, other=0.0).to(tl.float32)
            row = c + batch * c_batch + t * c_time
            read = tl.load(row + state, mask=width, other=0.0).to(tl.float32)
            row = dy + batch * dy_batch + t * dy_time
            dout = tl.load(row + channel, mask=present, other=0.0).to(tl.float32)
            before = tl.load(kept + ahead * (BLOCK * BLOCK_STATE))
            part = ((block * batches + batch) * length + t) * state_size + state
            tl.store(dc + part, tl.sum(dout[:, None] * h, axis=0), mask=width)
            dh = tl.where(inside, dh + dout[:, None] * read[None, :], 0.0)
            tl.store(db + part, tl.sum(dh * (step * u)[:, None], axis=0), mask=width)
            from_written = tl.sum(dh * written[None, :], axis=1)
            dh = tl.where(inside, tl.exp(step[:, None] * rates) * dh, 0.0)
            through = dh * before
            rates_total += through * step[:, None]
            skip_total += dout * u
            dstep = tl.sum(through * rates, axis=1) + from_written * u
            if SOFTPLUS:
                dstep *= softplus_slope(raw)
            dinput = from_written * step + direct * dout
            if TAPS > 0:
                dinput *= gate + u * (1.0 - gate)
                taps_total += dinput[None, :] * seen
                bias_total += dinput
            row = (batch * length + t) * channels
            tl.store(ddelta + row + channel, dstep.to(ddelta.dtype.element_ty), mask=present)
            tl.store(du + row + channel, dinput.to(du.dtype.element_ty), mask=present)
            h = before
        tl.debug_barrier()
    tl.store(da + own * plane + tile, rates_total, mask=inside)
    tl.store(dskip + own * channels + channel, skip_total, mask=present)
    if TAPS > 0:
        tap = tl.arange(0, BLOCK_TAPS)
        at = (own * channels + channel[None, :]) * TAPS + tap[:, None]
        tl.store(dtaps + at, taps_total, mask=(tap < TAPS)[:, None] & present[None, :])
        tl.store(dbias + own * channels + channel, bias_total, mask=present)


@triton.jit(do_not_specialize=BACKWARD_SIZES)
def segment_backward(
    delta, a, c, dy, decay, inner,
    delta_batch, delta_time, c_batch, c_time, dy_batch, dy_time,
    length, channels, state_size, segment,
    SOFTPLUS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_STATE: tl.constexpr,
):  # fmt: skip
    """The gradient of the state that enters one segment, by that segment's own outputs alone.

    It and the decay over the segment are (batch, segments, channels, state).
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
    dh = tl.zeros((BLOCK, BLOCK_STATE), tl.float32)
    elapsed = tl.zeros((BLOCK,), tl.float32)
    end = tl.minimum(piece * segment + segment, length)
    for back in range(end - piece * segment):
        t = (end - 1 - back).to(tl.int64)
        row = delta + batch * delta_batch + t * delta_time
        step, _ = step_size(row, channel, present, SOFTPLUS)
        row = c + batch * c_batch + t * c_time
        read = tl.load(row + state, mask=width, other=0.0).to(tl.float32)
        row = dy + batch * dy_batch + t * dy_time
        dout = tl.load(row + channel, mask=present, other=0.0).to(tl.float32)
        dh = tl.exp(step[:, None] * rates) * (dh + dout[:, None] * read[None, :])
        elapsed += step
    at = (batch * segments + piece) * plane + tile
    tl.store(inner + at, dh, mask=inside)
    tl.store(decay + at, tl.exp(elapsed[:, None] * rates), mask=inside)
