"""Eq. (1) and its gradients token by token, for sequences that hold a NaN or an infinity.

In a product over a chunk a NaN meets zero weights of earlier tokens, and infinities of both signs
become one. Sequences with such values are done again as they are defined. For all others these
kernels look for them and end.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .device import ABSENT, load_gate, load_rows, state_offsets, store_rows, strange_in


@triton.jit
def one_token(
    state, token, k, v, g, b, w, head, heads, key_dim, value_dim, channel, value_channel,
    G: tl.constexpr, B: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """The decayed state [K, BLOCK], what is added to it along the key [1, BLOCK], their sum."""
    live = token >= 0
    inside = (channel < key_dim)[:, None] & (value_channel < value_dim)[None, :]
    decay = load_gate(g, token, live, head, heads, key_dim, channel, G, 0.0)
    key = load_rows(k, token, live, head, heads, key_dim, channel)
    update = load_rows(v, token, live, head, heads, value_dim, value_channel)
    update *= load_gate(w, token, live, head, heads, value_dim, value_channel, W, 1.0)
    decayed = state * tl.trans(tl.exp(decay))
    if B != ABSENT:
        erase = key * load_gate(b, token, live, head, heads, key_dim, channel, B, 0.0)
        update -= tl.sum(tl.trans(erase) * decayed, axis=0)[None, :]
    return decayed, update, tl.where(inside, decayed + tl.trans(key) * update, 0.0)


@triton.jit(do_not_specialize=["heads"])
def token_serial_kernel(
    q,
    k,
    v,
    g,
    b,
    w,
    initial,
    strange,
    states,
    output,
    final,
    starts,
    stops,
    first_chunks,
    heads,
    key_dim,
    value_dim,
    scale,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    G: tl.constexpr,
    B: tl.constexpr,
    W: tl.constexpr,
    INITIAL: tl.constexpr,
):
    """Outputs, states before each chunk and the final one; grid (V/BLOCK, H, sequences)."""
    head, sequence = tl.program_id(1), tl.program_id(2)
    begin, end = tl.load(first_chunks + sequence), tl.load(first_chunks + sequence + 1)
    found = 0
    for chunk in range(begin, end):
        found += tl.load(strange + chunk.to(tl.int64) * heads + head)
    if found > 0:
        channel = tl.arange(0, KEYS)
        value_channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = (channel < key_dim)[:, None] & (value_channel < value_dim)[None, :]
        at = state_offsets(sequence, head, heads, channel, value_channel, key_dim, value_dim)
        state = tl.zeros((KEYS, BLOCK), tl.float32)
        if INITIAL:
            state += tl.load(initial + at, mask=inside, other=0.0).to(tl.float32)
        for chunk in range(begin, end):
            here = state_offsets(chunk, head, heads, channel, value_channel, key_dim, value_dim)
            tl.store(states + here, state.to(states.dtype.element_ty), mask=inside)
            for at_token in range(tl.load(starts + chunk), tl.load(stops + chunk)):
                token = at_token + tl.zeros((1,), tl.int64)
                _, _, state = one_token(
                    state, token, k, v, g, b, w, head, heads, key_dim, value_dim, channel,
                    value_channel, G, B, W,
                )  # fmt: skip
                live = token >= 0
                query = load_rows(q, token, live, head, heads, key_dim, channel) * scale
                read = tl.sum(tl.trans(query) * state, axis=0)[None, :]
                store_rows(output, read, token, live, head, heads, value_dim, value_channel)
        tl.store(final + at, state, mask=inside)


@triton.jit(do_not_specialize=["heads"])
def token_serial_gradient_kernel(
    q,
    k,
    v,
    g,
    b,
    w,
    states,
    strange,
    grad_output,
    grad_final,
    grad_q,
    grad_k,
    grad_v,
    grad_g,
    grad_b,
    grad_w,
    grad_initial,
    starts,
    stops,
    first_chunks,
    heads,
    key_dim,
    value_dim,
    scale,
    C: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    G: tl.constexpr,
    B: tl.constexpr,
    W: tl.constexpr,
    FINAL: tl.constexpr,
):
    """Gradients where an input or a given gradient is strange; grid (H, sequences).

    The state before a token is made again from that before its chunk. The gradient of the state
    waits in `grad_initial`, which is what is left of it in the end.
    """
    head, sequence = tl.program_id(0), tl.program_id(1)
    begin, end = tl.load(first_chunks + sequence), tl.load(first_chunks + sequence + 1)
    channel, row = tl.arange(0, KEYS), tl.arange(0, C)
    found = 0.0
    for chunk in range(begin, end):
        found += tl.load(strange + chunk.to(tl.int64) * heads + head)
        start, stop = tl.load(starts + chunk), tl.load(stops + chunk)
        for first in range(0, value_dim, BLOCK):
            value_channel = first + tl.arange(0, BLOCK)
            given = load_rows(
                grad_output, start + row, start + row < stop, head, heads, value_dim, value_channel
            )
            found += tl.sum(strange_in(given))
    if FINAL:
        for first in range(0, value_dim, BLOCK):
            value_channel = first + tl.arange(0, BLOCK)
            inside = (channel < key_dim)[:, None] & (value_channel < value_dim)[None, :]
            at = state_offsets(sequence, head, heads, channel, value_channel, key_dim, value_dim)
            given = tl.load(grad_final + at, mask=inside, other=0.0).to(tl.float32)
            found += tl.sum(strange_in(given))
    if found > 0:
        for first in range(0, value_dim, BLOCK):
            value_channel = first + tl.arange(0, BLOCK)
            inside = (channel < key_dim)[:, None] & (value_channel < value_dim)[None, :]
            at = state_offsets(sequence, head, heads, channel, value_channel, key_dim, value_dim)
            flow = tl.zeros((KEYS, BLOCK), tl.float32)
            if FINAL:
                flow += tl.load(grad_final + at, mask=inside, other=0.0).to(tl.float32)
            tl.store(grad_initial + at, flow, mask=inside)
        for chunks_left in range(0, end - begin):
            chunk = end - 1 - chunks_left
            start, stop = tl.load(starts + chunk), tl.load(stops + chunk)
            for tokens_left in range(0, stop - start):
                token = stop - 1 - tokens_left + tl.zeros((1,), tl.int64)
                live = token >= 0
                query = load_rows(q, token, live, head, heads, key_dim, channel) * scale
                key = load_rows(k, token, live, head, heads, key_dim, channel)
                decay = load_gate(g, token, live, head, heads, key_dim, channel, G, 0.0)
                gate = load_gate(b, token, live, head, heads, key_dim, channel, B, 0.0)
                dq = tl.zeros((KEYS,), tl.float32)
                dkey = tl.zeros((KEYS,), tl.float32)
                derased = tl.zeros((KEYS,), tl.float32)
                ddecay = tl.zeros((KEYS,), tl.float32)
                for first in range(0, value_dim, BLOCK):
                    value_channel = first + tl.arange(0, BLOCK)
                    inside = (channel < key_dim)[:, None] & (value_channel < value_dim)[None, :]
                    at = state_offsets(
                        chunk, head, heads, channel, value_channel, key_dim, value_dim
                    )
                    state = tl.load(states + at, mask=inside, other=0.0).to(tl.float32)
                    for at_earlier in range(start, stop - 1 - tokens_left):
                        earlier = at_earlier + tl.zeros((1,), tl.int64)
                        _, _, state = one_token(
                            state, earlier, k, v, g, b, w, head, heads, key_dim, value_dim,
                            channel, value_channel, G, B, W,
                        )  # fmt: skip
                    decayed, update, state = one_token(
                        state, token, k, v, g, b, w, head, heads, key_dim, value_dim, channel,
                        value_channel, G, B, W,
                    )  # fmt: skip
                    do = load_rows(grad_output, token, live, head, heads, value_dim, value_channel)
                    at = state_offsets(
                        sequence, head, heads, channel, value_channel, key_dim, value_dim
                    )
                    flow = tl.load(grad_initial + at, mask=inside, other=0.0)
                    flow = tl.where(inside, flow + tl.trans(query) * do, 0.0)
                    dq += tl.sum(state * do, axis=1)
                    dkey += tl.sum(tl.where(inside, flow * update, 0.0), axis=1)
                    dupdate = tl.sum(flow * tl.trans(key), axis=0)[None, :]
                    value = load_rows(v, token, live, head, heads, value_dim, value_channel)
                    write = load_gate(w, token, live, head, heads, value_dim, value_channel, W, 1.0)
                    store_rows(
                        grad_v, dupdate * write, token, live, head, heads, value_dim, value_channel
                    )
                    if W != ABSENT:
                        store_rows(
                            grad_w, dupdate * value, token, live, head, heads, value_dim,
                            value_channel,
                        )  # fmt: skip
                    if B != ABSENT:
                        derased -= tl.sum(tl.where(inside, decayed * dupdate, 0.0), axis=1)
                        flow -= tl.trans(key * gate) * dupdate
                    if G != ABSENT:
                        ddecay += tl.sum(tl.where(inside, flow * decayed, 0.0), axis=1)
                    flow = tl.where(inside, flow * tl.trans(tl.exp(decay)), 0.0)
                    tl.store(grad_initial + at, flow, mask=inside)
                store_rows(grad_q, dq[None, :] * scale, token, live, head, heads, key_dim, channel)
                if B != ABSENT:
                    store_rows(
                        grad_b, derased[None, :] * key, token, live, head, heads, key_dim, channel
                    )
                dkey = dkey[None, :] + derased[None, :] * gate
                store_rows(grad_k, dkey, token, live, head, heads, key_dim, channel)
                if G != ABSENT:
                    store_rows(grad_g, ddecay[None, :], token, live, head, heads, key_dim, channel)
