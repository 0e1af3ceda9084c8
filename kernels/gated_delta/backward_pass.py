"""The backward stages, launched in order. Shapes of scratch tensors: `forward_kernels.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from .backward_kernels import (
    inter_chunk_kernel,
    intra_chunk_kernel,
    output_adjoint_kernel,
    reverse_state_scan_kernel,
    transform_adjoint_kernel,
)
from .device import ABSENT
from .forward_pass import Scratch
from .serial_kernels import token_serial_gradient_kernel
from .setting import CHUNKS, SUB, THREAD_REGISTERS, WARPS, Setting, Tokens, block_for

INTER_BLOCK, INTRA_BLOCK = 32, 16
"""Most key channels of a tile in the last two stages, which hold several tiles in float32."""


class PackedGradients(NamedTuple):
    """Gradients of the packed inputs; those of absent gates are stubs."""

    q: Tensor
    """[tokens, H, K], like k in the dtype of q"""
    k: Tensor
    v: Tensor
    """[tokens, H, V] in the dtype of v"""
    g: Tensor
    """[tokens, H, K], like b in float32"""
    b: Tensor
    w: Tensor
    """[tokens, H, V] in float32"""
    initial: Tensor
    """[sequences, H, K, V] in float32"""


class Adjoints(NamedTuple):
    """Gradients on the way."""

    attention: Tensor
    """dA"""
    erasure: Tensor
    """dM"""
    states: Tensor
    """dh"""
    residual: Tensor
    """dR"""


Backward = Callable[[Tokens, Setting, Scratch, Tensor, Tensor | None], PackedGradients]
"""What runs all backward stages, as `run_backward` does."""


def in_triton(setting: Setting) -> Backward:
    """Choose the backward of this file, which takes whatever the forward does."""
    return run_backward


def run_backward(
    tokens: Tokens,
    setting: Setting,
    scratch: Scratch,
    grad_output: Tensor,
    grad_final: Tensor | None,
) -> PackedGradients:
    """Run all backward stages.

    Args:
        tokens: Inputs of the forward.
        setting: Its setting.
        scratch: What it kept.
        grad_output: [tokens, H, V] in the dtype of v.
        grad_final: [sequences, H, K, V], or None for zero.
    """
    t, s = tokens, setting
    grad_attention, local = _output_adjoint(grad_output, scratch, s)
    grad_states, grad_updates, grad_initial = _reverse_scan(
        grad_output, local, grad_final, scratch, s
    )
    residual, grad_erasure, grad_v, grad_w = _transform_adjoint(t, grad_updates, scratch, s)
    adjoints = Adjoints(grad_attention, grad_erasure, grad_states, residual)
    grad_q, grad_k, grad_g, grad_b = _key_gradients(t, grad_output, scratch, adjoints, s)
    return PackedGradients(grad_q, grad_k, grad_v, grad_g, grad_b, grad_w, grad_initial)


def repair_gradients(
    tokens: Tokens,
    setting: Setting,
    scratch: Scratch,
    grad_output: Tensor,
    grad_final: Tensor | None,
    grads: PackedGradients,
) -> None:
    """Do gradients of sequences with a NaN or an infinity again, token by token.

    Args:
        tokens: Inputs of the forward.
        setting: Its setting.
        scratch: What it kept.
        grad_output: [tokens, H, V] in the dtype of v.
        grad_final: [sequences, H, K, V], or None for zero.
        grads: Where the gradients are.
    """
    t, s = tokens, setting
    token_serial_gradient_kernel[(s.heads, s.chunks.sequences)](
        t.q,
        t.k,
        t.v,
        t.g,
        t.b,
        t.w,
        scratch.states,
        scratch.strange,
        grad_output,
        grad_final,
        *grads,
        **s.places,
        first_chunks=s.chunks.first_chunks,
        heads=s.heads,
        **s.widths,
        scale=s.scale,
        C=CHUNKS[s.dtype],
        G=s.g,
        B=s.b,
        W=s.w,
        FINAL=grad_final is not None,
        **s.scan_tile,
        num_warps=WARPS,
        maxnreg=THREAD_REGISTERS,
    )


def _wide(like: Tensor, wanted: bool = True) -> Tensor:
    """A float32 buffer, or a stub that no kernel touches."""
    return like.new_empty(like.shape if wanted else (1,), dtype=torch.float32)


def _output_adjoint(grad_output: Tensor, kept: Scratch, s: Setting) -> tuple[Tensor, Tensor]:
    """dA, and Aᵀ dO in float32."""
    grad_attention, local = torch.empty_like(kept.attention), _wide(kept.updates)
    output_adjoint_kernel[s.grid](
        grad_output,
        kept.attention,
        kept.updates,
        grad_attention,
        local,
        **s.places,
        heads=s.heads,
        value_dim=s.value_dim,
        BLOCK=block_for(s.value_dim),
        **s.tile,
        num_warps=WARPS,
        maxnreg=THREAD_REGISTERS,
    )
    return grad_attention, local


def _reverse_scan(
    grad_output: Tensor, local: Tensor, grad_final: Tensor | None, kept: Scratch, s: Setting
) -> tuple[Tensor, Tensor, Tensor]:
    """K#1: dh, dU and the gradient of the initial states."""
    grad_states, grad_updates = torch.empty_like(kept.states), torch.empty_like(kept.updates)
    grad_initial = local.new_empty(s.end_shape)
    reverse_state_scan_kernel[s.scan_grid](
        kept.query_decayed,
        kept.key_decayed,
        kept.erase_transformed,
        kept.chunk_decay,
        grad_output,
        local,
        grad_final,
        grad_states,
        grad_updates,
        grad_initial,
        **s.places,
        first_chunks=s.chunks.first_chunks,
        heads=s.heads,
        **s.widths,
        B=s.b,
        FINAL=grad_final is not None,
        SLICE=s.state_slice,
        **s.scan_tile,
        **s.tile,
        num_warps=WARPS,
        maxnreg=THREAD_REGISTERS,
    )
    return grad_states, grad_updates, grad_initial


def _transform_adjoint(
    t: Tokens, grad_updates: Tensor, kept: Scratch, s: Setting
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """K#2: dR, dM, dv and dw."""
    erases = s.b != ABSENT.value
    grad_v, grad_w = torch.empty_like(t.v), _wide(t.v, s.w != ABSENT.value)
    residual = t.v.new_empty(t.v.shape if erases else (1,))
    grad_erasure = torch.empty_like(kept.inverse)
    transform_adjoint_kernel[s.grid](
        t.v,
        t.w,
        kept.inverse,
        kept.updates,
        grad_updates,
        residual,
        grad_erasure,
        grad_v,
        grad_w,
        **s.places,
        heads=s.heads,
        value_dim=s.value_dim,
        BLOCK=block_for(s.value_dim),
        B=s.b,
        W=s.w,
        **s.tile,
        num_warps=WARPS,
    )
    return residual, grad_erasure, grad_v, grad_w


def _key_gradients(
    t: Tokens, grad_output: Tensor, kept: Scratch, adjoints: Adjoints, s: Setting
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dq, dk, dg and db: through states first, then between tokens of a chunk."""
    erases, decays = s.b != ABSENT.value, s.g != ABSENT.value
    inter = [_wide(t.k, wanted) for wanted in (True, erases, True, decays)]
    shared = {
        **s.places,
        "heads": s.heads,
        "key_dim": s.key_dim,
        "scale": s.scale,
        "G": s.g,
        "B": s.b,
        **s.tile,
        "num_warps": WARPS,
    }
    block = block_for(s.key_dim, INTER_BLOCK)
    inter_chunk_kernel[(*s.grid, triton.cdiv(s.key_dim, block))](
        t.q,
        t.k,
        t.g,
        t.b,
        grad_output,
        kept.updates,
        adjoints.residual,
        kept.states,
        adjoints.states,
        *inter,
        value_dim=s.value_dim,
        BLOCK=block,
        **shared,
        maxnreg=THREAD_REGISTERS,
    )
    results = torch.empty_like(t.q), torch.empty_like(t.k), _wide(t.k, decays), _wide(t.k, erases)
    grad_q, grad_k, grad_g, grad_b = results
    block = block_for(s.key_dim, INTRA_BLOCK)
    intra_chunk_kernel[(*s.block_grid, triton.cdiv(s.key_dim, block))](
        t.q,
        t.k,
        t.g,
        t.b,
        adjoints.attention,
        adjoints.erasure,
        *inter,
        grad_q,
        grad_k,
        grad_g,
        grad_b,
        SUB=SUB,
        BLOCK=block,
        **shared,
    )
    return results
