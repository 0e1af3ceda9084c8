"""Backward kernels, one for each stage of `stages.py`; scratch as in `forward_kernels.py`."""

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
    suffix_of,
)


@triton.jit(do_not_specialize=["heads"])
def output_adjoint_kernel(
    grad_output,
    attention,
    updates,
    grad_attention,
    grad_updates_local,
    starts,
    stops,
    heads,
    value_dim,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """dA = tril(dO Uᵀ) and Aᵀ dO; grid (chunks, H)."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    start, stop = tl.load(starts + chunk), tl.load(stops + chunk)
    row = tl.arange(0, C)
    token = start + row
    live = token < stop
    at = matrix_offsets(chunk, head, heads, row, row, C)
    a_transposed = tl.trans(tl.load(attention + at))
    da = tl.zeros((C, C), tl.float32)
    none = tl.zeros((C, BLOCK), tl.float32)
    for channel_start in range(0, value_dim, BLOCK):
        channel = channel_start + tl.arange(0, BLOCK)
        do = load_rows(grad_output, token, live, head, heads, value_dim, channel)
        update = load_rows(updates, token, live, head, heads, value_dim, channel)
        da = product(do, tl.trans(update), da, OPERAND)
        local = product(a_transposed, do, none, OPERAND)
        store_rows(grad_updates_local, local, token, live, head, heads, value_dim, channel)
    da = tl.where(row[:, None] >= row[None, :], da, 0.0)
    tl.store(grad_attention + at, da.to(grad_attention.dtype.element_ty))


@triton.jit(do_not_specialize=["heads"])
def reverse_state_scan_kernel(
    query_decayed,
    key_decayed,
    erase_transformed,
    chunk_decay,
    grad_output,
    grad_updates_local,
    grad_final,
    grad_states,
    grad_updates,
    grad_initial,
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
    FINAL: tl.constexpr,
):
    """K#1: dU = Aᵀ dO + Kg dS and dS ← exp(a_C)∘dS + Qgᵀ dO − Wwᵀ dU; grid (V/BLOCK, H, sequences).

    dS [K, BLOCK] stays in registers, in float32.
    """
    head, sequence = tl.program_id(1), tl.program_id(2)
    channel = tl.arange(0, KEYS)
    value_channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.arange(0, C)
    inside = (channel < key_dim)[:, None] & (value_channel < value_dim)[None, :]
    at = state_offsets(sequence, head, heads, channel, value_channel, key_dim, value_dim)
    ds = tl.zeros((KEYS, BLOCK), tl.float32)
    if FINAL:
        ds += tl.load(grad_final + at, mask=inside, other=0.0).to(tl.float32)
    first, end = tl.load(first_chunks + sequence), tl.load(first_chunks + sequence + 1)
    for back in range(end - first):
        chunk = end - 1 - back
        start, stop = tl.load(starts + chunk), tl.load(stops + chunk)
        token = start + row
        live = token < stop
        here = state_offsets(chunk, head, heads, channel, value_channel, key_dim, value_dim)
        tl.store(grad_states + here, ds.to(grad_states.dtype.element_ty), mask=inside)
        du = load_rows(grad_updates_local, token, live, head, heads, value_dim, value_channel)
        du = product_with_state(
            key_decayed, token, live, head, heads, ds, grad_states, chunk, value_channel,
            key_dim, value_dim, du, 1.0, SLICE, OPERAND,
        )  # fmt: skip
        store_rows(grad_updates, du, token, live, head, heads, value_dim, value_channel)
        decay_at = (chunk.to(tl.int64) * heads + head) * key_dim + channel
        decay = tl.load(chunk_decay + decay_at, mask=channel < key_dim, other=0.0)
        do = load_rows(grad_output, token, live, head, heads, value_dim, value_channel)
        query = load_rows(query_decayed, token, live, head, heads, key_dim, channel)
        ds = product(tl.trans(query), do, decay[:, None] * ds, OPERAND)
        if B != ABSENT:
            erased = load_rows(erase_transformed, token, live, head, heads, key_dim, channel)
            ds = product(tl.trans(-erased), du, ds, OPERAND)
    tl.store(grad_initial + at, ds, mask=inside)


@triton.jit(do_not_specialize=["heads"])
def transform_adjoint_kernel(
    v,
    w,
    inverse,
    updates,
    grad_updates,
    residual,
    grad_erasure,
    grad_v,
    grad_w,
    starts,
    stops,
    heads,
    value_dim,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    OPERAND: tl.constexpr,
    B: tl.constexpr,
    W: tl.constexpr,
):
    """K#2: dR = Tᵀ dU, dM = −stril(dR Uᵀ), dv = dR∘w, dw = dR∘v; grid (chunks, H).

    The remaining product, dKb = −dR hᵀ, is made where it is used, by `inter_chunk_kernel`.
    """
    chunk, head = tl.program_id(0), tl.program_id(1)
    start, stop = tl.load(starts + chunk), tl.load(stops + chunk)
    row = tl.arange(0, C)
    token = start + row
    live = token < stop
    at = matrix_offsets(chunk, head, heads, row, row, C)
    if B != ABSENT:
        t_transposed = tl.trans(tl.load(inverse + at))
    dm = tl.zeros((C, C), tl.float32)
    none = tl.zeros((C, BLOCK), tl.float32)
    for channel_start in range(0, value_dim, BLOCK):
        channel = channel_start + tl.arange(0, BLOCK)
        dr = load_rows(grad_updates, token, live, head, heads, value_dim, channel)
        if B != ABSENT:
            dr = product(t_transposed, dr, none, OPERAND)
            update = load_rows(updates, token, live, head, heads, value_dim, channel)
            dm = product(-dr, tl.trans(update), dm, OPERAND)
            store_rows(residual, dr, token, live, head, heads, value_dim, channel)
        gate = load_gate(w, token, live, head, heads, value_dim, channel, W, 1.0)
        store_rows(grad_v, dr * gate, token, live, head, heads, value_dim, channel)
        if W != ABSENT:
            value = load_rows(v, token, live, head, heads, value_dim, channel)
            store_rows(grad_w, dr * value, token, live, head, heads, value_dim, channel)
    if B != ABSENT:
        dm = tl.where(row[:, None] > row[None, :], dm, 0.0)
        tl.store(grad_erasure + at, dm.to(grad_erasure.dtype.element_ty))


@triton.jit(do_not_specialize=["heads"])
def inter_chunk_kernel(
    q,
    k,
    g,
    b,
    grad_output,
    updates,
    residual,
    states,
    grad_states,
    grad_query,
    grad_erased,
    grad_key,
    grad_decay,
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
):
    """dq, d(b∘k), κ and dg through the states; grid (chunks, H, K/BLOCK)."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    channel = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    start, stop = tl.load(starts + chunk), tl.load(stops + chunk)
    row = tl.arange(0, C)
    token = start + row
    live = token < stop
    dq = tl.zeros((C, BLOCK), tl.float32)
    derased = tl.zeros((C, BLOCK), tl.float32)
    dkey = tl.zeros((C, BLOCK), tl.float32)
    through = tl.zeros((BLOCK,), tl.float32)
    for value_start in range(0, value_dim, BLOCK):
        value_channel = value_start + tl.arange(0, BLOCK)
        at = state_offsets(chunk, head, heads, channel, value_channel, key_dim, value_dim)
        inside = (channel < key_dim)[:, None] & (value_channel < value_dim)[None, :]
        h = tl.load(states + at, mask=inside, other=0.0)
        dh = tl.load(grad_states + at, mask=inside, other=0.0)
        do = load_rows(grad_output, token, live, head, heads, value_dim, value_channel)
        update = load_rows(updates, token, live, head, heads, value_dim, value_channel)
        dq = product(do, tl.trans(h), dq, OPERAND)
        dkey = product(update, tl.trans(dh), dkey, OPERAND)
        if B != ABSENT:
            dr = load_rows(residual, token, live, head, heads, value_dim, value_channel)
            derased = product(-dr, tl.trans(h), derased, OPERAND)
        through += tl.sum(h.to(tl.float32) * dh.to(tl.float32), axis=1)
    entry = tl.exp(prefix_of(g, start, stop, 0, row, head, heads, key_dim, channel, G))
    leave = tl.exp(suffix_of(g, start, stop, C, row, head, heads, key_dim, channel, G))
    dq *= entry
    dkey *= leave
    store_rows(grad_query, dq, token, live, head, heads, key_dim, channel)
    store_rows(grad_key, dkey, token, live, head, heads, key_dim, channel)
    if B != ABSENT:
        derased *= entry
        store_rows(grad_erased, derased, token, live, head, heads, key_dim, channel)
    if G != ABSENT:
        key = load_rows(k, token, live, head, heads, key_dim, channel)
        arriving = load_rows(q, token, live, head, heads, key_dim, channel) * scale * dq
        if B != ABSENT:
            gate = load_gate(b, token, live, head, heads, key_dim, channel, B, 0.0)
            arriving += gate * key * derased
        dg = tl.cumsum(arriving, axis=0, reverse=True) + before_each(key * dkey, row)
        total = tl.sum(tl.where((row == C - 1)[:, None], entry, 0.0), axis=0)
        dg += (total * through)[None, :]
        store_rows(grad_decay, dg, token, live, head, heads, key_dim, channel)


@triton.jit
def before_each(x, row):
    """Sum of the rows before each row of x [R, BLOCK], without taking a row's own out again."""
    running = tl.cumsum(x, axis=0)
    above = tl.broadcast_to(tl.maximum(row - 1, 0)[:, None], x.shape)
    return tl.where((row > 0)[:, None], tl.gather(running, above, axis=0), 0.0)


@triton.jit(do_not_specialize=["heads"])
def intra_chunk_kernel(
    q,
    k,
    g,
    b,
    grad_attention,
    grad_erasure,
    inter_query,
    inter_erased,
    inter_key,
    inter_decay,
    grad_q,
    grad_k,
    grad_g,
    grad_b,
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
    """Gradients between tokens of one chunk for a block of SUB tokens, and the gates.

    Grid (chunks · C/SUB, H, K/BLOCK). The block's tokens meet earlier ones (`left`) as queries and
    later ones (`right`) as keys, with decays referred to the block's ends; their own decays are
    also crossed by pairs of an earlier and a later token.
    """
    chunk, block = tl.program_id(0) // (C // SUB), tl.program_id(0) % (C // SUB)
    head = tl.program_id(1)
    channel = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    start, stop = tl.load(starts + chunk), tl.load(stops + chunk)
    first, end = block * SUB, block * SUB + SUB
    local, column = tl.arange(0, SUB), tl.arange(0, C)
    token = start + first + local
    live = token < stop
    query = load_rows(q, token, live, head, heads, key_dim, channel) * scale
    key = load_rows(k, token, live, head, heads, key_dim, channel)
    gate = load_gate(b, token, live, head, heads, key_dim, channel, B, 0.0)
    erase = gate * key
    dq = tl.zeros((SUB, BLOCK), tl.float32)
    derased = tl.zeros((SUB, BLOCK), tl.float32)
    dkey = tl.zeros((SUB, BLOCK), tl.float32)
    dg = tl.zeros((SUB, BLOCK), tl.float32)
    none = tl.zeros((C, BLOCK), tl.float32)

    earlier = (column < first) & (start + column < stop)
    later = (column >= end) & (start + column < stop)
    back = tl.exp(suffix_of(g, start, stop, first, column, head, heads, key_dim, channel, G))
    left = load_rows(k, start + column, earlier, head, heads, key_dim, channel) * back
    forth = tl.exp(prefix_of(g, start, stop, end, column, head, heads, key_dim, channel, G))
    right = load_rows(q, start + column, later, head, heads, key_dim, channel) * scale * forth

    at = matrix_offsets(chunk, head, heads, first + local, column, C)
    at_later = matrix_offsets(chunk, head, heads, column, first + local, C)
    at_cross = matrix_offsets(chunk, head, heads, column, column, C)
    is_cross = later[:, None] & earlier[None, :]
    from_left = earlier[None, :] & live[:, None]
    from_right = later[:, None] & live[None, :]
    da = tl.load(grad_attention + at, mask=from_left, other=0.0)
    dq = product(da, left, dq, OPERAND)
    da_later = tl.load(grad_attention + at_later, mask=from_right, other=0.0)
    dkey = product(tl.trans(da_later), right, dkey, OPERAND)
    if G != ABSENT:
        da_cross = tl.load(grad_attention + at_cross, mask=is_cross, other=0.0)
        crossing = tl.sum(right * product(da_cross, left, none, OPERAND), axis=0)
    if B != ABSENT:
        right = load_rows(k, start + column, later, head, heads, key_dim, channel) * forth
        right *= load_gate(b, start + column, later, head, heads, key_dim, channel, B, 0.0)
        dm = tl.load(grad_erasure + at, mask=from_left, other=0.0)
        derased = product(dm, left, derased, OPERAND)
        dm_later = tl.load(grad_erasure + at_later, mask=from_right, other=0.0)
        dkey = product(tl.trans(dm_later), right, dkey, OPERAND)
        if G != ABSENT:
            dm_cross = tl.load(grad_erasure + at_cross, mask=is_cross, other=0.0)
            crossing += tl.sum(right * product(dm_cross, left, none, OPERAND), axis=0)
    if G != ABSENT:
        prefix = prefix_of(g, start + first, stop, 0, local, head, heads, key_dim, channel, G)
        suffix = suffix_of(g, start + first, stop, SUB, local, head, heads, key_dim, channel, G)
        dq *= tl.exp(prefix)
        derased *= tl.exp(prefix)
        dkey *= tl.exp(suffix)
        total = tl.sum(tl.where((local == SUB - 1)[:, None], tl.exp(prefix), 0.0), axis=0)
        dg = tl.cumsum(query * dq + erase * derased, axis=0, reverse=True)
        dg += before_each(key * dkey, local) + (crossing * total)[None, :]

    span = tl.zeros((SUB, BLOCK), tl.float32)
    for step in range(SUB):
        j = SUB - 1 - step
        row = start + first + j + tl.zeros((1,), tl.int32)
        if G != ABSENT:
            after = (j + 1 < SUB) & (row + 1 < stop)
            decay = load_gate(g, row + 1, after, head, heads, key_dim, channel, G, 0.0)
            span = tl.where(local[:, None] > j, span + decay, 0.0)
        reached = tl.exp(span)
        source = load_rows(k, row, row < stop, head, heads, key_dim, channel)
        at_column = matrix_offsets(
            chunk, head, heads, first + local, first + j + tl.zeros((1,), tl.int32), C
        )
        a_flow = tl.load(grad_attention + at_column).to(tl.float32) * reached
        dq += a_flow * source
        flow = a_flow * query
        if B != ABSENT:
            m_flow = tl.load(grad_erasure + at_column).to(tl.float32) * reached
            derased += m_flow * source
            flow += m_flow * erase
        dkey += tl.where(local[:, None] == j, tl.sum(flow, axis=0)[None, :], 0.0)
        if G != ABSENT:
            reaching = tl.cumsum(flow * source, axis=0, reverse=True)
            dg += tl.where(local[:, None] > j, reaching, 0.0)

    dq += load_rows(inter_query, token, live, head, heads, key_dim, channel)
    dkey += load_rows(inter_key, token, live, head, heads, key_dim, channel)
    store_rows(grad_q, dq * scale, token, live, head, heads, key_dim, channel)
    if B != ABSENT:
        derased += load_rows(inter_erased, token, live, head, heads, key_dim, channel)
        dkey += derased * gate
        store_rows(grad_b, derased * key, token, live, head, heads, key_dim, channel)
    store_rows(grad_k, dkey, token, live, head, heads, key_dim, channel)
    if G != ABSENT:
        dg += load_rows(inter_decay, token, live, head, heads, key_dim, channel)
        store_rows(grad_g, dg, token, live, head, heads, key_dim, channel)
