"""Chunkwise forward and backward: the stages of `stages.py`, put together in plain torch.

In float64 it is the oracle's second form; in float32 with rounded operands it models what kernels
on tensor cores can reach. Layouts are those of `reference.py`, with T of any length: the last chunk
is filled with tokens of zeros, which change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from . import stages
from .reference import Gradients
from .stages import (
    Decays,
    KeyGradients,
    Operand,
    Pairs,
    ReverseScan,
    Scan,
    TransformGradients,
    exact,
)

CHUNK = 64


@dataclass(frozen=True, slots=True)
class Saved:
    """What the backward needs of the forward. Tensors are [B, H, N, C, …]."""

    q: Tensor
    """Scaled queries."""
    k: Tensor
    v: Tensor
    b: Tensor
    w: Tensor
    decay: Decays
    pairs: Pairs
    inverse: Tensor
    """T"""
    erase_transformed: Tensor
    """Ww"""
    scan: Scan
    length: int
    """T, before it was filled up."""
    scale: float


def chunked_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    b: Tensor,
    w: Tensor,
    *,
    scale: float = 1.0,
    initial_state: Tensor | None = None,
    chunk: int = CHUNK,
    operand: Operand = exact,
) -> tuple[Tensor, Tensor, Saved]:
    """Run Eq. (1) chunk by chunk. Arguments as for `serial_forward`, in any floating dtype.

    Returns:
        Outputs [B, T, H, V], the final state [B, H, K, V], and what the backward needs.
    """
    length = q.shape[1]
    q, k, v, g, b, w = (split(x, chunk) for x in (q * scale, k, v, g, b, w))
    decay = stages.decays(g)
    entry = decay.prefix.exp()
    pairs = stages.pair_products(q, k, b * k, decay.span, operand)
    inverse = stages.triangular_inverse(pairs.erasure)
    transformed, written = stages.wy_pair(inverse, b * k * entry, w * v, operand)
    if initial_state is None:
        initial_state = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
    key_decayed = k * decay.suffix.exp()
    scan = stages.state_scan(transformed, written, key_decayed, decay.total, initial_state, operand)
    output = stages.outputs(q * entry, scan.states, pairs.attention, scan.updates, operand)
    saved = Saved(q, k, v, b, w, decay, pairs, inverse, transformed, scan, length, scale)
    return join(output, length), scan.final, saved


class Adjoints(NamedTuple):
    """What the backward's matrix products leave, but for those between tokens of a chunk."""

    attention: Tensor
    """dA [B, H, N, C, C]"""
    scan: ReverseScan
    transform: TransformGradients
    query: Tensor
    """dQg [B, H, N, C, K], of the decayed queries."""
    key: Tensor
    """dKg [B, H, N, C, K], of the decayed keys."""


def chunked_backward(
    saved: Saved,
    grad_output: Tensor,
    grad_final_state: Tensor | None = None,
    *,
    operand: Operand = exact,
    seven_products: bool = False,
    decay_by_difference: bool = False,
) -> Gradients:
    """Run the hand-derived chunkwise backward.

    Args:
        saved: From `chunked_forward`.
        grad_output: [B, T, H, V].
        grad_final_state: [B, H, K, V], zero if None.
        operand: Rounding of the operands of matrix products.
        seven_products: Take K#2 in its longer form.
        decay_by_difference: Take dg in its cancelling form.
    """
    s, scan = saved, saved.scan
    entry, grad_output = s.decay.prefix.exp(), split(grad_output, saved.q.shape[-2])
    grad_final = torch.zeros_like(scan.final) if grad_final_state is None else grad_final_state
    grad_attention, local = stages.output_adjoint(
        grad_output, s.pairs.attention, scan.updates, operand
    )
    reverse = stages.reverse_state_scan(
        s.q * entry,
        s.k * s.decay.suffix.exp(),
        s.erase_transformed,
        s.decay.total,
        grad_output,
        local,
        grad_final,
        operand,
    )
    if seven_products:
        transform = stages.transform_adjoint_by_inverse(
            s.inverse,
            s.b * s.k * entry,
            s.w * s.v,
            scan.states,
            reverse.grad_updates,
            operand,
        )
    else:
        transform = stages.transform_adjoint(
            s.inverse, scan.updates, scan.states, reverse.grad_updates, operand
        )
    through_states = stages.state_gradients(
        grad_output, scan.updates, scan.states, reverse.grad_states, operand
    )
    adjoints = Adjoints(grad_attention, reverse, transform, *through_states)
    return gradients(saved, adjoints, operand=operand, decay_by_difference=decay_by_difference)


def gradients(
    saved: Saved,
    adjoints: Adjoints,
    *,
    operand: Operand = exact,
    decay_by_difference: bool = False,
) -> Gradients:
    """The rest of the backward: products of tokens of one chunk, decays and gates.

    Args:
        saved: From `chunked_forward`.
        adjoints: From the stages before.
        operand: Rounding of the operands of matrix products.
        decay_by_difference: Take dg in its cancelling form.
    """
    s, states, grad_states = saved, saved.scan.states, adjoints.scan.grad_states
    erase = s.b * s.k
    inter = stages.inter_chunk_gradients(
        s.q,
        s.k,
        erase,
        s.decay,
        adjoints.query,
        adjoints.key,
        adjoints.transform.erased,
        states,
        grad_states,
    )
    grad_pairs = Pairs(adjoints.attention, adjoints.transform.erasure)
    intra = stages.intra_chunk_gradients(s.q, s.k, erase, s.decay.span, grad_pairs, operand)
    total = KeyGradients(*(x + y for x, y in zip(inter, intra, strict=True)))
    if decay_by_difference:
        grad_decay = stages.decay_gradient(
            s.q, s.k, erase, total, inter.key, s.decay, states, grad_states
        )
        total = total._replace(decay=grad_decay)
    return _gates(saved, total, adjoints.transform.written, adjoints.scan.grad_initial)


def _gates(
    saved: Saved, keys: KeyGradients, grad_written: Tensor, grad_initial: Tensor
) -> Gradients:
    """Gates, last stage: db = d(b∘k)∘k, dk = κ + d(b∘k)∘b, dw = d(w∘v)∘v, dv = d(w∘v)∘w."""
    tensors = (
        keys.query * saved.scale,
        keys.key + keys.erased * saved.b,
        grad_written * saved.w,
        keys.decay,
        keys.erased * saved.k,
        grad_written * saved.v,
    )
    return Gradients(*(join(x, saved.length) for x in tensors), grad_initial)


def split(x: Tensor, chunk: int) -> Tensor:
    """[B, T, H, D] → [B, H, N, C, D], the last chunk filled with zeros."""
    batch, length, heads, width = x.shape
    missing = -length % chunk
    if missing:
        x = torch.cat([x, x.new_zeros(batch, missing, heads, width)], dim=1)
    return x.reshape(batch, -1, chunk, heads, width).permute(0, 3, 1, 2, 4)


def join(x: Tensor, length: int) -> Tensor:
    """[B, H, N, C, D] → [B, T, H, D], without what `split` filled in."""
    batch, heads, chunks, chunk, width = x.shape
    return x.permute(0, 2, 3, 1, 4).reshape(batch, chunks * chunk, heads, width)[:, :length]
