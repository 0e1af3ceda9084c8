"""C3: gradients of the multi-input multi-output scan, from right to left in time.

With dS carried from the right, at each t, for each rank r:

    dC_r = S_tᵀ (dy ∘ m^out_r)          dm^out_r += dy ∘ S_t C_r
    dS ← dS + Σ_r (dy ∘ m^out_r) C_rᵀ
    dα = ⟨dS, S_{t−1}⟩                   z_r = dS B_r
    dΔ = Σ_r ⟨z_r, x ∘ m^in_r⟩          dB_r = Δ dSᵀ (x ∘ m^in_r)
    dx = Δ Σ_r z_r ∘ m^in_r             dm^in_r += Δ z_r ∘ x
    dS ← α dS

The states of one chunk at a time are computed again from its checkpoint into `scratch`. What
several programs add to goes to a part of each program's own, summed later in a fixed order.
"""

import triton
import triton.language as tl

from .forward import input_weights, written_state

BACKWARD_SIZES = (
    *("x_batch", "x_time", "x_head", "b_batch", "b_time", "b_rank", "b_head"),
    *("c_batch", "c_time", "c_rank", "c_head"),
    *("length", "heads", "rows", "state_size", "ranks", "segment"),
)


@triton.jit(do_not_specialize=BACKWARD_SIZES)
def scan_backward(
    x, b, c, delta, alpha, mix_in, mix_out, dy, border, checkpoint, scratch,
    dx, db, dc, ddelta, dalpha, dmix_in, dmix_out,
    x_batch, x_time, x_head, b_batch, b_time, b_rank, b_head, c_batch, c_time, c_rank, c_head,
    length, heads, rows, state_size, ranks, segment,
    MIX: tl.constexpr, PARALLEL: tl.constexpr, CHUNK: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_STATE: tl.constexpr, BLOCK_RANK: tl.constexpr,
):  # fmt: skip
    """Gradients over one segment.

    `dy` and `dx` are (batch, length, heads, rows). Parts: `db` and `dc` (blocks, batch, length,
    ranks, heads, state), `ddelta` and `dalpha` (blocks, batch, length, heads), `dmix_in` and
    `dmix_out` (batch · heads, segments, ranks, rows), written if MIX. `border` (batch · heads,
    segments, rows, state) is the gradient of the state that leaves the segment, read if PARALLEL.
    `scratch` is (programs, CHUNK, BLOCK, BLOCK_STATE).
    """
    blocks, segments = tl.cdiv(rows, BLOCK), tl.cdiv(length, segment)
    program = tl.program_id(0)
    block = program % blocks
    row = block * BLOCK + tl.arange(0, BLOCK)
    piece = program // blocks % segments
    sequence = (program // blocks // segments).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    batches = tl.num_programs(0) // blocks // segments // heads
    first_token = block.to(tl.int64) * batches * length
    state, rank_of = tl.arange(0, BLOCK_STATE), tl.arange(0, BLOCK_RANK)
    present, width = row < rows, state < state_size
    inside = present[:, None] & width[None, :]
    tile = row[:, None].to(tl.int64) * state_size + state[None, :]
    plane = rows.to(tl.int64) * state_size
    in_total = tl.zeros((BLOCK_RANK, BLOCK), tl.float32)
    out_total = tl.zeros((BLOCK_RANK, BLOCK), tl.float32)
    ds = tl.zeros((BLOCK, BLOCK_STATE), tl.float32)
    if PARALLEL:
        ds = tl.load(border + (sequence * segments + piece) * plane + tile, mask=inside, other=0.0)
    local = tl.arange(0, BLOCK)[:, None] * BLOCK_STATE + state[None, :]
    kept = scratch + program.to(tl.int64) * (CHUNK * BLOCK * BLOCK_STATE) + local
    first, end = piece * segment, tl.minimum(piece * segment + segment, length)
    chunks = tl.cdiv(end - first, CHUNK)
    for done in range(chunks):
        start = first + (chunks - 1 - done) * CHUNK
        tokens = tl.minimum(CHUNK, end - start)
        slot = sequence * tl.cdiv(length, CHUNK) + start // CHUNK
        s = tl.load(checkpoint + slot * plane + tile, mask=inside, other=0.0)
        for ahead in range(tokens):
            t = (start + ahead).to(tl.int64)
            own = (batch * length + t) * heads + head
            tl.store(kept + ahead * (BLOCK * BLOCK_STATE), s)
            at = x + batch * x_batch + t * x_time + head * x_head + row
            value = tl.load(at, mask=present, other=0.0).to(tl.float32)
            maps = b + batch * b_batch + t * b_time + head * b_head
            written = written_state(
                value, maps, b_rank, mix_in, head, ranks, rows, row, state, present, width, MIX
            )
            step, fade = tl.load(delta + own).to(tl.float32), tl.load(alpha + own).to(tl.float32)
            s = tl.where(inside, fade * s + step * written, 0.0)
        tl.debug_barrier()
        for back in range(tokens):
            ahead = tokens - 1 - back
            t = (start + ahead).to(tl.int64)
            token = batch * length + t
            own = token * heads + head
            part = (first_token + token) * ranks
            before = tl.load(kept + ahead * (BLOCK * BLOCK_STATE))
            dout = tl.load(dy + own * rows + row, mask=present, other=0.0).to(tl.float32)
            maps = c + batch * c_batch + t * c_time + head * c_head
            for rank in range(ranks):
                place = maps + rank.to(tl.int64) * c_rank + state
                read = tl.load(place, mask=width, other=0.0).to(tl.float32)
                weights = input_weights(mix_out, head, rank, ranks, rows, row, present, MIX)
                weighted = dout * weights
                place = ((part + rank) * heads + head) * state_size + state
                tl.store(dc + place, tl.sum(weighted[:, None] * s, axis=0), mask=width)
                ds = tl.where(inside, ds + weighted[:, None] * read[None, :], 0.0)
                if MIX:
                    gained = dout * tl.sum(s * read[None, :], axis=1)
                    mine = (rank_of == rank)[:, None]
                    out_total = tl.where(mine, out_total + gained[None, :], out_total)
            own_part = (first_token + token) * heads + head
            tl.store(dalpha + own_part, tl.sum(tl.sum(ds * before, axis=1), axis=0))
            at = x + batch * x_batch + t * x_time + head * x_head + row
            value = tl.load(at, mask=present, other=0.0).to(tl.float32)
            step, fade = tl.load(delta + own).to(tl.float32), tl.load(alpha + own).to(tl.float32)
            maps = b + batch * b_batch + t * b_time + head * b_head
            dvalue, dstep = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
            for rank in range(ranks):
                place = maps + rank.to(tl.int64) * b_rank + state
                written = tl.load(place, mask=width, other=0.0).to(tl.float32)
                weights = input_weights(mix_in, head, rank, ranks, rows, row, present, MIX)
                mixed = value * weights
                seen = tl.sum(ds * written[None, :], axis=1)
                dstep += seen * mixed
                dvalue += seen * weights
                place = ((part + rank) * heads + head) * state_size + state
                tl.store(db + place, step * tl.sum(ds * mixed[:, None], axis=0), mask=width)
                if MIX:
                    mine = (rank_of == rank)[:, None]
                    gained = step * seen * value
                    in_total = tl.where(mine, in_total + gained[None, :], in_total)
            tl.store(ddelta + own_part, tl.sum(dstep, axis=0))
            tl.store(dx + own * rows + row, (step * dvalue).to(dx.dtype.element_ty), mask=present)
            ds = tl.where(inside, fade * ds, 0.0)
            s = before
        tl.debug_barrier()
    if MIX:
        at = ((sequence * segments + piece) * ranks + rank_of[:, None]) * rows + row[None, :]
        there = (rank_of < ranks)[:, None] & present[None, :]
        tl.store(dmix_in + at, in_total, mask=there)
        tl.store(dmix_out + at, out_total, mask=there)


@triton.jit(do_not_specialize=BACKWARD_SIZES)
def segment_backward(
    c, alpha, mix_out, dy, decay, inner,
    c_batch, c_time, c_rank, c_head,
    length, heads, rows, state_size, ranks, segment,
    MIX: tl.constexpr, BLOCK: tl.constexpr, BLOCK_STATE: tl.constexpr,
):  # fmt: skip
    """The gradient of the state that enters one segment, by that segment's own outputs alone.

    It and the decay over the segment are (batch · heads, segments, rows, state).
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
    ds = tl.zeros((BLOCK, BLOCK_STATE), tl.float32)
    faded = 1.0
    end = tl.minimum(piece * segment + segment, length)
    for back in range(end - piece * segment):
        t = (end - 1 - back).to(tl.int64)
        own = (batch * length + t) * heads + head
        dout = tl.load(dy + own * rows + row, mask=present, other=0.0).to(tl.float32)
        maps = c + batch * c_batch + t * c_time + head * c_head
        ds += written_state(
            dout, maps, c_rank, mix_out, head, ranks, rows, row, state, present, width, MIX
        )
        fade = tl.load(alpha + own).to(tl.float32)
        ds = fade * ds
        faded *= fade
    at = (sequence * segments + piece) * rows * state_size
    at += row[:, None].to(tl.int64) * state_size + state[None, :]
    tl.store(inner + at, ds, mask=inside)
    tl.store(decay + at, tl.zeros_like(ds) + faded, mask=inside)
