"""What the kernels of the family share: loads of token rows and gates, products, decays.

Token tensors are packed, [tokens, H, width], whatever batch and sequences they come from; a chunk
is the tokens [start, stop), at most C of them, and rows past its end load as zeros: a token of
zeros changes nothing. Products take operands in the dtype OPERAND and add in float32; float32
operands are multiplied as float32, never as TF32.
"""

from __future__ import annotations

import triton
import triton.language as tl

ABSENT = tl.constexpr(0)
"""A gate that is not there: g = 0, b = 0 or w = 1."""
PER_HEAD = tl.constexpr(1)
"""A gate [tokens, H], the same for all channels."""
PER_CHANNEL = tl.constexpr(2)
"""A gate [tokens, H, width]."""


@triton.jit
def strange_in(x):
    """One where x is NaN or infinite, else zero.

    By comparison: x − x is not zero where the compiler fuses it with the product that x is.
    """
    return tl.where(tl.abs(x) < float("inf"), 0.0, 1.0)


@triton.jit
def product(left, right, total, OPERAND: tl.constexpr):
    """total + left @ right."""
    return tl.dot(left.to(OPERAND), right.to(OPERAND), total, input_precision="ieee")


@triton.jit
def product_with_state(
    rows, token, live, head, heads, state, stored, chunk, value_channel, key_dim, value_dim, total,
    SIGN: tl.constexpr, SLICE: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """total + SIGN · rows @ state for packed rows [tokens, H, K] and a state [K, BLOCK].

    `stored` is where the state has just been written, [chunks, H, K, V]. Without tensor cores every
    thread would hold whole rows and columns of a product, so with SLICE < K the state is read back
    in slices of that many key channels.
    """
    if state.shape[0] <= SLICE:
        channel = tl.arange(0, state.shape[0])
        factor = load_rows(rows, token, live, head, heads, key_dim, channel)
        total = product(SIGN * factor, state, total, OPERAND)
    else:
        tl.debug_barrier()
        for first in range(0, key_dim, SLICE):
            channel = first + tl.arange(0, SLICE)
            factor = load_rows(rows, token, live, head, heads, key_dim, channel)
            at = state_offsets(chunk, head, heads, channel, value_channel, key_dim, value_dim)
            inside = (channel < key_dim)[:, None] & (value_channel < value_dim)[None, :]
            part = tl.load(stored + at, mask=inside, other=0.0)
            total = product(SIGN * factor, part, total, OPERAND)
    return total


@triton.jit
def row_offsets(token, head, heads, width, channel):
    """Offsets of rows [R, BLOCK] of a packed tensor, in int64: large tensors pass 2³¹."""
    rows = token.to(tl.int64) * heads + head
    return rows[:, None] * width + channel[None, :]


@triton.jit
def load_rows(pointer, token, live, head, heads, width, channel):
    """Rows of a packed tensor in float32, zero where not live: [R, BLOCK]."""
    mask = live[:, None] & (channel < width)[None, :]
    offsets = row_offsets(token, head, heads, width, channel)
    return tl.load(pointer + offsets, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store_rows(pointer, value, token, live, head, heads, width, channel):
    """Write rows [R, BLOCK] of a packed tensor."""
    mask = live[:, None] & (channel < width)[None, :]
    offsets = row_offsets(token, head, heads, width, channel)
    tl.store(pointer + offsets, value.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def load_gate(
    pointer, token, live, head, heads, width, channel, KIND: tl.constexpr, DEFAULT: tl.constexpr
):
    """A gate in float32 [R, BLOCK], DEFAULT if it is absent and zero where not live."""
    if KIND == PER_CHANNEL:
        gate = load_rows(pointer, token, live, head, heads, width, channel)
    elif KIND == PER_HEAD:
        at = token.to(tl.int64) * heads + head
        per_head = tl.load(pointer + at, mask=live, other=0.0).to(tl.float32)
        gate = tl.where((channel < width)[None, :], per_head[:, None], 0.0)
    else:
        gate = tl.full((token.shape[0], channel.shape[0]), DEFAULT, tl.float32)
    return gate


@triton.jit
def matrix_offsets(chunk, head, heads, row, column, C: tl.constexpr):
    """Offsets into a matrix [chunks, H, C, C]."""
    return ((chunk.to(tl.int64) * heads + head) * C + row[:, None]) * C + column[None, :]


@triton.jit
def state_offsets(chunk, head, heads, channel, value_channel, key_dim, value_dim):
    """Offsets into states [chunks, H, K, V]."""
    first = (chunk.to(tl.int64) * heads + head) * key_dim
    return (first + channel[:, None]) * value_dim + value_channel[None, :]


@triton.jit
def prefix_of(g, start, stop, first, row, head, heads, width, channel, KIND: tl.constexpr):
    """Σ of log decays from row `first` of the chunk through each row; 0 for rows before it.

    [R, BLOCK], R rows from the chunk's entry.
    """
    if KIND == ABSENT:
        terms = tl.zeros((row.shape[0], channel.shape[0]), tl.float32)
    else:
        live = (row >= first) & (start + row < stop)
        terms = load_gate(g, start + row, live, head, heads, width, channel, KIND, 0.0)
        terms = tl.cumsum(terms, axis=0)
    return terms


@triton.jit
def suffix_of(g, start, stop, last, row, head, heads, width, channel, KIND: tl.constexpr):
    """Σ of log decays after each row and before row `last` of the chunk; 0 from there on.

    [R, BLOCK]. The terms are loaded one row ahead, so that a row's own decay never enters and
    need not be taken out again.
    """
    if KIND == ABSENT:
        terms = tl.zeros((row.shape[0], channel.shape[0]), tl.float32)
    else:
        live = (row + 1 < last) & (start + row + 1 < stop)
        terms = load_gate(g, start + row + 1, live, head, heads, width, channel, KIND, 0.0)
        terms = tl.cumsum(terms, axis=0, reverse=True)
    return terms
