"""Forward kernels, one for each stage of `stages.py`.

Scratch tensors: A and T are [chunks, H, C, C]; Qg, Kg, Ww are [tokens, H, K], Uu and U
[tokens, H, V]; the chunks' decays exp(a_C) are [chunks, H, K]; states h are [chunks, H, K, V].
"""

from __future__ import annotations

import triton
import triton.language as tl

from .device import (
    ABSENT,
    load_gate,
    load_rows,
    matrix_offsets,
    prefix_of,
    product,
    product_with_state,
    state_offsets,
    store_rows,
    strange_in,
    suffix_of,
)


@triton.jit(do_not_specialize=["heads"])
def pair_products_kernel(
    q,
    k,
    g,
    b,
    attention,
    erasure,
    starts,
    stops,
    heads,
    key_dim,
    scale,
    C: tl.constexpr,
    SUB: tl.constexpr,
    BLOCK: tl.constexpr,
    OPERAND: tl.constexpr,
    G: tl.constexpr,
    B: tl.constexpr,
):
    """Rows of A and M for one block of SUB tokens; grid (chunks · C/SUB, H).

    Pairs with an earlier block refer both decays to the block's first row, from which one looks
    forward and the other back: exp of sums that are never positive. Within the block every pair has
    its own sum.
    """
    chunk, block = tl.program_id(0) // (C // SUB), tl.program_id(0) % (C // SUB)
    head = tl.program_id(1)
    start, stop = tl.load(starts + chunk), tl.load(stops + chunk)
    first = block * SUB
    local, column = tl.arange(0, SUB), tl.arange(0, C)
    token = start + first + local
    live = token < stop
    earlier = (column < first) & (start + column < stop)
    a = tl.zeros((SUB, C), tl.float32)
    m = tl.zeros((SUB, C), tl.float32)
    a_diagonal = tl.zeros((SUB, SUB), tl.float32)
    m_diagonal = tl.zeros((SUB, SUB), tl.float32)
    for channel_start in range(0, key_dim, BLOCK):
        channel = channel_start + tl.arange(0, BLOCK)
        query = load_rows(q, token, live, head, heads, key_dim, channel) * scale
        erase = load_gate(b, token, live, head, heads, key_dim, channel, B, 0.0)
        erase *= load_rows(k, token, live, head, heads, key_dim, channel)
        forth = tl.exp(
            prefix_of(g, start + first, stop, 0, local, head, heads, key_dim, channel, G)
        )
        back = tl.exp(suffix_of(g, start, stop, first, column, head, heads, key_dim, channel, G))
        sources = load_rows(k, start + column, earlier, head, heads, key_dim, channel) * back
        a = product(query * forth, tl.trans(sources), a, OPERAND)
        if B != ABSENT:
            m = product(erase * forth, tl.trans(sources), m, OPERAND)
        span = tl.zeros((SUB, BLOCK), tl.float32)
        for step in range(SUB):
            j = SUB - 1 - step
            row = start + first + j + tl.zeros((1,), tl.int32)
            if G != ABSENT:
                after = (j + 1 < SUB) & (row + 1 < stop)
                decay = load_gate(g, row + 1, after, head, heads, key_dim, channel, G, 0.0)
                span = tl.where(local[:, None] > j, span + decay, 0.0)
            source = load_rows(k, row, row < stop, head, heads, key_dim, channel) * tl.exp(span)
            here = local[None, :] == j
            a_column = tl.sum(query * source, axis=1)[:, None]
            a_diagonal += tl.where(here & (local[:, None] >= j), a_column, 0.0)
            if B != ABSENT:
                m_column = tl.sum(erase * source, axis=1)[:, None]
                m_diagonal += tl.where(here & (local[:, None] > j), m_column, 0.0)
    rows = first + local
    outside = (column < first) | (column >= first + SUB)
    outside = outside[None, :] & (local >= 0)[:, None]
    at = matrix_offsets(chunk, head, heads, rows, column, C)
    at_diagonal = matrix_offsets(chunk, head, heads, rows, first + local, C)
    tl.store(attention + at, a.to(attention.dtype.element_ty), mask=outside)
    tl.store(attention + at_diagonal, a_diagonal.to(attention.dtype.element_ty))
    if B != ABSENT:
        tl.store(erasure + at, m, mask=outside)
        tl.store(erasure + at_diagonal, m_diagonal)


@triton.jit(do_not_specialize=["heads"])
def triangular_inverse_kernel(erasure, inverse, heads, C: tl.constexpr, SUB: tl.constexpr):
    """T = (I + M)⁻¹ in float32; grid (chunks, H).

    Block row by block row: T_I = D_I (E_I − M_I,<I T_<I), D_I by substitution.
    """
    chunk, head = tl.program_id(0), tl.program_id(1)
    local, column = tl.arange(0, SUB), tl.arange(0, C)
    block_of = tl.arange(0, C // SUB)
    known = tl.zeros((C, C), tl.float32)
    for block in range(C // SUB):
        rows = block * SUB + local
        diagonal = tl.where(local[:, None] == local[None, :], 1.0, 0.0)
        for i in range(1, SUB):
            at = matrix_offsets(
                chunk, head, heads, block * SUB + i + tl.zeros((1,), tl.int32), rows, C
            )
            weights = tl.trans(tl.load(erasure + at, mask=local[None, :] < i, other=0.0))
            known_sum = tl.sum(weights * diagonal, axis=0)[None, :]
            diagonal -= tl.where(local[:, None] == i, known_sum, 0.0)
        at = matrix_offsets(chunk, head, heads, rows, column, C)
        before = tl.load(erasure + at, mask=(column < block * SUB)[None, :], other=0.0)
        unit = tl.where(rows[:, None] == column[None, :], 1.0, 0.0)
        rest = unit - tl.dot(before, known, input_precision="ieee")
        result = tl.dot(diagonal, rest, input_precision="ieee")
        tl.store(inverse + at, result.to(inverse.dtype.element_ty))
        spread = tl.where((block_of == block)[:, None, None], result[None, :, :], 0.0)
        known += tl.reshape(spread, (C, C))


@triton.jit(do_not_specialize=["heads"])
def transform_kernel(
    q,
    k,
    v,
    g,
    b,
    w,
    inverse,
    query_decayed,
    key_decayed,
    erase_transformed,
    written_transformed,
    chunk_decay,
    strange,
    starts,
    stops,
    heads,
    key_dim,
    value_dim,
    scale,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    OPERAND: tl.constexpr,
    G: tl.constexpr,
    B: tl.constexpr,
    W: tl.constexpr,
):
    """Qg, Kg, exp(a_C), Ww = T Kb and Uu = T (w∘v); grid (chunks, H).

    Notes in `strange` which chunks hold a NaN or an infinity, for `serial_kernels.py`.
    """
    chunk, head = tl.program_id(0), tl.program_id(1)
    start, stop = tl.load(starts + chunk), tl.load(stops + chunk)
    row = tl.arange(0, C)
    token = start + row
    live = token < stop
    if B != ABSENT:
        t = tl.load(inverse + matrix_offsets(chunk, head, heads, row, row, C))
    none = tl.zeros((C, BLOCK), tl.float32)
    found = tl.zeros((C, BLOCK), tl.float32)
    for channel_start in range(0, key_dim, BLOCK):
        channel = channel_start + tl.arange(0, BLOCK)
        query = load_rows(q, token, live, head, heads, key_dim, channel) * scale
        key = load_rows(k, token, live, head, heads, key_dim, channel)
        found += strange_in(query) + strange_in(key)
        prefix = prefix_of(g, start, stop, 0, row, head, heads, key_dim, channel, G)
        entry = tl.exp(prefix)
        found += strange_in(entry)
        leave = tl.exp(suffix_of(g, start, stop, C, row, head, heads, key_dim, channel, G))
        store_rows(query_decayed, query * entry, token, live, head, heads, key_dim, channel)
        store_rows(key_decayed, key * leave, token, live, head, heads, key_dim, channel)
        through = tl.sum(tl.where((row == C - 1)[:, None], entry, 0.0), axis=0)
        at = (chunk.to(tl.int64) * heads + head) * key_dim + channel
        tl.store(chunk_decay + at, through, mask=channel < key_dim)
        if B != ABSENT:
            gate = load_gate(b, token, live, head, heads, key_dim, channel, B, 0.0)
            found += strange_in(gate)
            transformed = product(t, gate * key * entry, none, OPERAND)
            store_rows(erase_transformed, transformed, token, live, head, heads, key_dim, channel)
    for channel_start in range(0, value_dim, BLOCK):
        channel = channel_start + tl.arange(0, BLOCK)
        written = load_rows(v, token, live, head, heads, value_dim, channel)
        gate = load_gate(w, token, live, head, heads, value_dim, channel, W, 1.0)
        found += strange_in(written) + strange_in(gate)
        written *= gate
        if B != ABSENT:
            written = product(t, written, none, OPERAND)
        store_rows(written_transformed, written, token, live, head, heads, value_dim, channel)
    any_found = tl.where(tl.sum(tl.sum(found, axis=1), axis=0) > 0.0, 1, 0)
    tl.store(strange + chunk.to(tl.int64) * heads + head, any_found)


@triton.jit(do_not_specialize=["heads"])
def state_scan_kernel(
    key_decayed,
    erase_transformed,
    written_transformed,
    chunk_decay,
    initial,
    states,
    updates,
    final,
    starts,
    stops,
    first_chunks,
    heads,
    key_dim,
    value_dim,
    C: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    SLICE: tl.constexpr,
    OPERAND: tl.constexpr,
    B: tl.constexpr,
    INITIAL: tl.constexpr,
):
    """U = Uu − Ww h and h ← exp(a_C)∘h + Kgᵀ U; grid (V/BLOCK, H, sequences).

    The state [K, BLOCK] stays in registers, in float32.
    """
    head, sequence = tl.program_id(1), tl.program_id(2)
    channel = tl.arange(0, KEYS)
    value_channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.arange(0, C)
    inside = (channel < key_dim)[:, None] & (value_channel < value_dim)[None, :]
    at = state_offsets(sequence, head, heads, channel, value_channel, key_dim, value_dim)
    state = tl.zeros((KEYS, BLOCK), tl.float32)
    if INITIAL:
        state += tl.load(initial + at, mask=inside, other=0.0).to(tl.float32)
    for chunk in range(tl.load(first_chunks + sequence), tl.load(first_chunks + sequence + 1)):
        start, stop = tl.load(starts + chunk), tl.load(stops + chunk)
        token = start + row
        live = token < stop
        here = state_offsets(chunk, head, heads, channel, value_channel, key_dim, value_dim)
        tl.store(states + here, state.to(states.dtype.element_ty), mask=inside)
        update = load_rows(written_transformed, token, live, head, heads, value_dim, value_channel)
        if B != ABSENT:
            update = product_with_state(
                erase_transformed, token, live, head, heads, state, states, chunk, value_channel,
                key_dim, value_dim, update, -1.0, SLICE, OPERAND,
            )  # fmt: skip
        store_rows(updates, update, token, live, head, heads, value_dim, value_channel)
        decay_at = (chunk.to(tl.int64) * heads + head) * key_dim + channel
        decay = tl.load(chunk_decay + decay_at, mask=channel < key_dim, other=0.0)
        key = load_rows(key_decayed, token, live, head, heads, key_dim, channel)
        state = product(tl.trans(key), update, decay[:, None] * state, OPERAND)
    tl.store(final + at, state, mask=inside)


@triton.jit(do_not_specialize=["heads"])
def outputs_kernel(
    query_decayed,
    states,
    attention,
    updates,
    output,
    starts,
    stops,
    heads,
    key_dim,
    value_dim,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """O = Qg h + A U for one block of value channels; grid (chunks, H, V/BLOCK)."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    start, stop = tl.load(starts + chunk), tl.load(stops + chunk)
    row = tl.arange(0, C)
    token = start + row
    live = token < stop
    value_channel = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(attention + matrix_offsets(chunk, head, heads, row, row, C))
    update = load_rows(updates, token, live, head, heads, value_dim, value_channel)
    total = product(a, update, tl.zeros((C, BLOCK), tl.float32), OPERAND)
    for channel_start in range(0, key_dim, BLOCK):
        channel = channel_start + tl.arange(0, BLOCK)
        query = load_rows(query_decayed, token, live, head, heads, key_dim, channel)
        at = state_offsets(chunk, head, heads, channel, value_channel, key_dim, value_dim)
        inside = (channel < key_dim)[:, None] & (value_channel < value_dim)[None, :]
        state = tl.load(states + at, mask=inside, other=0.0)
        total = product(query, state, total, OPERAND)
    store_rows(output, total, token, live, head, heads, value_dim, value_channel)
