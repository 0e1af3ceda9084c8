"""The forward pass of the multi-input multi-output scan, from left to right in time.

    S_t = α_t S_{t−1} + Δ_t Σ_r (x_t ∘ m^in_r) B_{t,r}ᵀ,   y_t = Σ_r m^out_r ∘ (S_t C_{t,r})

A program holds a tile (BLOCK rows of P, BLOCK_STATE of N) of one head's state in float32
registers. Without MIX there is one rank whose weights are 1, and they are not read.

Memory: x and y (batch, length, heads, rows), maps (batch, length, ranks, heads, state), Δ and α
(batch, length, heads), weights (heads, ranks, rows). All are dense but x and the maps.
"""

import triton
import triton.language as tl

FORWARD_SIZES = (
    *("x_batch", "x_time", "x_head", "b_batch", "b_time", "b_rank", "b_head"),
    *("c_batch", "c_time", "c_rank", "c_head"),
    *("length", "heads", "rows", "state_size", "ranks", "segment"),
)
"""Arguments of which no special kernel is made: strides in elements, and sizes."""


@triton.jit
def input_weights(mix, head, rank, ranks, rows, row, present, MIX: tl.constexpr):
    """Weights of one rank, (BLOCK,)."""
    weights = tl.where(present, 1.0, 0.0)
    if MIX:
        at = mix + (head * ranks + rank) * rows + row
        weights = tl.load(at, mask=present, other=0.0).to(tl.float32)
    return weights


@triton.jit
def written_state(
    x, b, b_rank, mix, head, ranks, rows, row, state, present, width, MIX: tl.constexpr
):
    """Σ_r (x ∘ m^in_r) B_rᵀ at one token, (BLOCK, BLOCK_STATE); `b` points at the token."""
    total = tl.zeros((x.shape[0], state.shape[0]), tl.float32)
    for rank in range(ranks):
        mixed = x * input_weights(mix, head, rank, ranks, rows, row, present, MIX)
        at = b + rank.to(tl.int64) * b_rank + state
        total += mixed[:, None] * tl.load(at, mask=width, other=0.0).to(tl.float32)[None, :]
    return total


@triton.jit(do_not_specialize=FORWARD_SIZES)
def scan_forward(
    x, b, c, delta, alpha, mix_in, mix_out, entry, y, checkpoint,
    x_batch, x_time, x_head, b_batch, b_time, b_rank, b_head, c_batch, c_time, c_rank, c_head,
    length, heads, rows, state_size, ranks, segment,
    MIX: tl.constexpr, PARALLEL: tl.constexpr, KEEP: tl.constexpr,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, BLOCK_STATE: tl.constexpr,
):  # fmt: skip
    """Outputs of one segment, and the state before each of its chunks.

    `entry` (batch · heads, segments, rows, state) is read if PARALLEL, else the state starts at
    zero; `checkpoint` (batch · heads, chunks, rows, state) is written if KEEP.
    """
    blocks, segments = tl.cdiv(rows, BLOCK), tl.cdiv(length, segment)
    program = tl.program_id(0)
    row = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    piece = program // blocks % segments
    sequence = (program // blocks // segments).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    state = tl.arange(0, BLOCK_STATE)
    present, width = row < rows, state < state_size
    inside = present[:, None] & width[None, :]
    tile = row[:, None].to(tl.int64) * state_size + state[None, :]
    plane = rows.to(tl.int64) * state_size
    s = tl.zeros((BLOCK, BLOCK_STATE), tl.float32)
    if PARALLEL:
        s = tl.load(entry + (sequence * segments + piece) * plane + tile, mask=inside, other=0.0)
    end = tl.minimum(piece * segment + segment, length)
    for start in range(piece * segment, end, CHUNK):
        if KEEP:
            slot = sequence * tl.cdiv(length, CHUNK) + start // CHUNK
            tl.store(checkpoint + slot * plane + tile, s, mask=inside)
        for token in range(start, tl.minimum(start + CHUNK, end)):
            t = token.to(tl.int64)
            own = (batch * length + t) * heads + head
            at = x + batch * x_batch + t * x_time + head * x_head + row
            value = tl.load(at, mask=present, other=0.0).to(tl.float32)
            maps = b + batch * b_batch + t * b_time + head * b_head
            written = written_state(
                value, maps, b_rank, mix_in, head, ranks, rows, row, state, present, width, MIX
            )
            step, fade = tl.load(delta + own).to(tl.float32), tl.load(alpha + own).to(tl.float32)
            s = tl.where(inside, fade * s + step * written, 0.0)
            maps = c + batch * c_batch + t * c_time + head * c_head
            out = tl.zeros((BLOCK,), tl.float32)
            for rank in range(ranks):
                place = maps + rank.to(tl.int64) * c_rank + state
                read = tl.load(place, mask=width, other=0.0).to(tl.float32)
                weights = input_weights(mix_out, head, rank, ranks, rows, row, present, MIX)
                out += weights * tl.sum(s * read[None, :], axis=1)
            tl.store(y + own * rows + row, out.to(y.dtype.element_ty), mask=present)


@triton.jit(do_not_specialize=FORWARD_SIZES)
def segment_forward(
    x, b, delta, alpha, mix_in, decay, inner,
    x_batch, x_time, x_head, b_batch, b_time, b_rank, b_head,
    length, heads, rows, state_size, ranks, segment,
    MIX: tl.constexpr, BLOCK: tl.constexpr, BLOCK_STATE: tl.constexpr,
):  # fmt: skip
    """The state at the end of one segment that was entered with zero, and the decay over it.

    Both are (batch · heads, segments, rows, state).
    """
    blocks, segments = tl.cdiv(rows, BLOCK), tl.cdiv(length, segment)
    program = tl.program_id(0)
    row = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    piece = program // blocks % segments
    sequence = (program // blocks // segments).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    state = tl.arange(0, BLOCK_STATE)
    present, width = row < rows, state < state_size
    inside = present[:, None] & width[None, :]
    s = tl.zeros((BLOCK, BLOCK_STATE), tl.float32)
    faded = 1.0
    for token in range(piece * segment, tl.minimum(piece * segment + segment, length)):
        t = token.to(tl.int64)
        own = (batch * length + t) * heads + head
        at = x + batch * x_batch + t * x_time + head * x_head + row
        value = tl.load(at, mask=present, other=0.0).to(tl.float32)
        maps = b + batch * b_batch + t * b_time + head * b_head
        written = written_state(
            value, maps, b_rank, mix_in, head, ranks, rows, row, state, present, width, MIX
        )
        step, fade = tl.load(delta + own).to(tl.float32), tl.load(alpha + own).to(tl.float32)
        s = fade * s + step * written
        faded *= fade
    at = (sequence * segments + piece) * rows * state_size
    at += row[:, None].to(tl.int64) * state_size + state[None, :]
    tl.store(inner + at, s, mask=inside)
    tl.store(decay + at, tl.zeros_like(s) + faded, mask=inside)
