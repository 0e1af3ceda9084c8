"""The forward stages, launched in order. Shapes of scratch tensors: `forward_kernels.py`."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from .device import ABSENT
from .forward_kernels import (
    outputs_kernel,
    pair_products_kernel,
    state_scan_kernel,
    transform_kernel,
    triangular_inverse_kernel,
)
from .serial_kernels import token_serial_kernel
from .setting import SUB, THREAD_REGISTERS, WARPS, Setting, Tokens, block_for

TRANSFORM_BLOCK = 32
"""Most channels of a tile of `transform_kernel`, which holds several in float32."""


class Transformed(NamedTuple):
    """What `transform_kernel` makes of the tokens."""

    query_decayed: Tensor
    """Qg"""
    key_decayed: Tensor
    """Kg"""
    erase_transformed: Tensor
    """Ww"""
    written_transformed: Tensor
    """Uu, float32"""
    chunk_decay: Tensor
    """exp(a_C), float32"""
    strange: Tensor
    """Whether a chunk's inputs hold a NaN or an infinity, int32 [chunks, H]."""


class Scratch(NamedTuple):
    """What the backward needs of the forward; operand dtype but for decays and marks."""

    query_decayed: Tensor
    """Qg"""
    key_decayed: Tensor
    """Kg"""
    erase_transformed: Tensor
    """Ww"""
    chunk_decay: Tensor
    """exp(a_C), float32"""
    attention: Tensor
    """A"""
    inverse: Tensor
    """T"""
    updates: Tensor
    """U"""
    states: Tensor
    """h"""
    strange: Tensor
    """Which chunks hold a NaN or an infinity, int32 [chunks, H]."""


def run_forward(
    tokens: Tokens, setting: Setting, initial: Tensor | None
) -> tuple[Tensor, Tensor, Scratch]:
    """Run all forward stages.

    Returns:
        Outputs [tokens, H, V] in the dtype of v, final states [sequences, H, K, V] in float32, and
        what the backward needs.
    """
    attention, inverse = _pairs(tokens, setting)
    made = _transform(tokens, inverse, setting)
    states, updates, final = _scan(made, initial, tokens, setting)
    output, block = torch.empty_like(tokens.v), block_for(setting.value_dim)
    outputs_kernel[(*setting.grid, triton.cdiv(setting.value_dim, block))](
        made.query_decayed,
        states,
        attention,
        updates,
        output,
        **setting.places,
        heads=setting.heads,
        **setting.widths,
        BLOCK=block,
        **setting.tile,
        num_warps=WARPS,
    )
    _repair(tokens, initial, made.strange, states, output, final, setting)
    kept = (made.query_decayed, made.key_decayed, made.erase_transformed, made.chunk_decay)
    return output, final, Scratch(*kept, attention, inverse, updates, states, made.strange)


def _pairs(t: Tokens, s: Setting) -> tuple[Tensor, Tensor]:
    """A and T; T is a stub if nothing is erased."""
    attention = t.q.new_empty(s.matrix_shape)
    shape = s.matrix_shape if s.b != ABSENT.value else (1,)
    erasure, inverse = t.q.new_empty(shape, dtype=torch.float32), t.q.new_empty(shape)
    pair_products_kernel[s.block_grid](
        t.q,
        t.k,
        t.g,
        t.b,
        attention,
        erasure,
        **s.places,
        heads=s.heads,
        key_dim=s.key_dim,
        scale=s.scale,
        SUB=SUB,
        BLOCK=block_for(s.key_dim, s.product_depth),
        G=s.g,
        B=s.b,
        **s.tile,
        num_warps=WARPS,
        maxnreg=THREAD_REGISTERS,
    )
    if s.b != ABSENT.value:
        triangular_inverse_kernel[s.grid](
            erasure, inverse, s.heads, C=s.tile["C"], SUB=SUB, num_warps=WARPS
        )
    return attention, inverse


def _transform(t: Tokens, inverse: Tensor, s: Setting) -> Transformed:
    made = Transformed(
        torch.empty_like(t.q),
        torch.empty_like(t.k),
        t.k.new_empty(t.k.shape if s.b != ABSENT.value else (1,)),
        torch.empty_like(t.v, dtype=torch.float32),
        t.k.new_empty(s.state_shape[:3], dtype=torch.float32),
        t.k.new_empty(s.grid, dtype=torch.int32),
    )
    transform_kernel[s.grid](
        t.q,
        t.k,
        t.v,
        t.g,
        t.b,
        t.w,
        inverse,
        *made,
        **s.places,
        heads=s.heads,
        **s.widths,
        scale=s.scale,
        BLOCK=block_for(max(s.key_dim, s.value_dim), TRANSFORM_BLOCK),
        G=s.g,
        B=s.b,
        W=s.w,
        **s.tile,
        num_warps=WARPS,
        maxnreg=THREAD_REGISTERS,
    )
    return made


def _scan(
    made: Transformed, initial: Tensor | None, t: Tokens, s: Setting
) -> tuple[Tensor, Tensor, Tensor]:
    """h, U and the final states."""
    states, updates = t.q.new_empty(s.state_shape), torch.empty_like(t.v)
    final = t.q.new_empty(s.end_shape, dtype=torch.float32)
    state_scan_kernel[s.scan_grid](
        made.key_decayed,
        made.erase_transformed,
        made.written_transformed,
        made.chunk_decay,
        initial,
        states,
        updates,
        final,
        **s.places,
        first_chunks=s.chunks.first_chunks,
        heads=s.heads,
        **s.widths,
        B=s.b,
        INITIAL=initial is not None,
        SLICE=s.state_slice,
        **s.scan_tile,
        **s.tile,
        num_warps=WARPS,
        maxnreg=THREAD_REGISTERS,
    )
    return states, updates, final


def _repair(
    t: Tokens,
    initial: Tensor | None,
    strange: Tensor,
    states: Tensor,
    output: Tensor,
    final: Tensor,
    s: Setting,
) -> None:
    """Do sequences with a NaN or an infinity in their inputs again, token by token."""
    token_serial_kernel[s.scan_grid](
        t.q,
        t.k,
        t.v,
        t.g,
        t.b,
        t.w,
        initial,
        strange,
        states,
        output,
        final,
        **s.places,
        first_chunks=s.chunks.first_chunks,
        heads=s.heads,
        **s.widths,
        scale=s.scale,
        G=s.g,
        B=s.b,
        W=s.w,
        INITIAL=initial is not None,
        **s.scan_tile,
        num_warps=WARPS,
        maxnreg=THREAD_REGISTERS,
    )
