"""Composite operations as the operations that they hide.

PyTorch's own decompositions serve, except where they stop at an operation that still hides a
cancellation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._ops import OpOverload

Decomposition = Callable[..., Any]

aten = torch.ops.aten


@functools.cache
def decomposition_of(func: OpOverload) -> Decomposition | None:
    """The operations that a composite hides, as a function; None where it hides none."""
    if func in _OWN:
        return _OWN[func]
    if func in decomposition_table:
        return decomposition_table[func]
    if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return func.decompose
    return None


def _var_mean(
    x: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """Two passes: the mean, then the squared distances from it."""
    dims = tuple(dim) if dim else tuple(range(x.dim()))
    count = math.prod(x.shape[d] for d in dims)
    mean = x.mean(dims, keepdim=True)
    freedom = max(0.0, count - (1 if correction is None else correction))
    distance = x - mean
    square = (distance * distance.conj()).real if x.is_complex() else distance * distance
    variance = square.sum(dims, keepdim=keepdim) / freedom
    return variance, mean if keepdim else mean.squeeze(dims)


def _var(x: Tensor, dim: Sequence[int] | None = None, **options: Any) -> Tensor:
    return _var_mean(x, dim, **options)[0]


def _prims_var(x: Tensor, dims: Sequence[int], correction: float = 1.0, **_: Any) -> Tensor:
    return _var_mean(x, dims, correction=correction)[0]


def _std(x: Tensor, dim: Sequence[int] | None = None, **options: Any) -> Tensor:
    return _var_mean(x, dim, **options)[0].sqrt()


def _std_mean(x: Tensor, dim: Sequence[int] | None = None, **options: Any) -> tuple[Tensor, Tensor]:
    variance, mean = _var_mean(x, dim, **options)
    return variance.sqrt(), mean


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """With stored statistics, folded into one scale and one shift as most kernels do.

    `x * scale - mean * scale` cancels near the mean, where `(x - mean) * scale` does not.
    """
    if training:
        whole = decomposition_table[aten.native_batch_norm.default]
        return whole(x, weight, bias, mean, variance, training, momentum, eps)
    scale = torch.rsqrt(variance + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    per_channel = (-1,) + (1,) * (x.dim() - 2)
    empty = x.new_empty(0)
    return x * scale.reshape(per_channel) + shift.reshape(per_channel), empty, empty


def _evaluated_batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return _batch_norm(x, weight, bias, mean, variance, False, momentum, eps)


def _hardsigmoid(x: Tensor) -> Tensor:
    """As it is defined, x / 6 + 1 / 2, which cancels near −3, where (x + 3) / 6 does not."""
    return (x / 6 + 0.5).clamp(0, 1)


def _hardswish(x: Tensor) -> Tensor:
    return x * _hardsigmoid(x)


def _pairwise_distances(x: Tensor, y: Tensor, p: float, compute_mode: int | None) -> Tensor:
    return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, dim=-1)


_OWN: dict[OpOverload, Decomposition] = {
    aten.native_batch_norm.default: _batch_norm,
    aten._native_batch_norm_legit_no_training.default: _evaluated_batch_norm,
    aten.var.correction: _var,
    aten.var_mean.correction: _var_mean,
    aten.std.correction: _std,
    aten.std_mean.correction: _std_mean,
    torch.ops.prims.var.default: _prims_var,
    aten._cdist_forward.default: _pairwise_distances,
    aten.hardsigmoid.default: _hardsigmoid,
    aten.hardswish.default: _hardswish,
}
