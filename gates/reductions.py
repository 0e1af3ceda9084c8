"""Operations that add up many terms: how many, and whether tensor cores may take part.

A sum of N terms, added in any sensible order, is off by about u * sqrt(N) * sum(|terms|). The sum
of magnitudes is the operation itself on absolute values, so a rule here only counts the terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Arguments = Sequence[Any]
Options = Mapping[str, Any]
TermsRule = Callable[[Arguments, Options, Sequence[Tensor]], "int | Tensor"]


@dataclass(frozen=True, slots=True)
class Reduction:
    """An operation that sums `terms` terms and is linear in each floating argument."""

    terms: TermsRule
    """Terms per result, as one number or per element; 0 where nothing is added up."""
    product: bool = False
    """Whether terms are products of two tensors, which tensor cores may take in TF32."""
    addend: int | None = None
    """Position of the argument that is added to the products, if there is one."""
    running_product: bool = False
    """Whether terms are multiplied: the error then scales with the result alone."""
    coordinates: bool = False
    """Whether the terms' weights come from rounded coordinates: off by u times the extent."""


def _per_result(args: Arguments, options: Options, outs: Sequence[Tensor]) -> int:
    return max(1, args[0].numel() // max(1, outs[0].numel()))


def _length(args: Arguments, options: Options, outs: Sequence[Tensor]) -> int:
    dim = args[1] if len(args) > 1 else options["dim"]
    return args[0].shape[dim] if args[0].dim() else 1


def _inner(position: int, addends: int = 0) -> TermsRule:
    return lambda args, options, outs: args[position].shape[-1] + addends


def _batched_inner(args: Arguments, options: Options, outs: Sequence[Tensor]) -> int:
    return args[1].shape[0] * args[1].shape[-1] + 1


def _convolution(args: Arguments, options: Options, outs: Sequence[Tensor]) -> int:
    weight, transposed, groups = args[1], args[6], args[8]
    if transposed:
        return weight[0, 0].numel() * (weight.shape[0] // groups) + 1
    return weight[0].numel() + 1


def _convolution_backward(args: Arguments, options: Options, outs: Sequence[Tensor]) -> int:
    cotangent, weight = args[0], args[2]
    per_weight = cotangent.numel() // max(1, cotangent.shape[1])
    return max(per_weight, weight[:, 0].numel(), weight[0].numel())


def _window(position: int) -> TermsRule:
    return lambda args, options, outs: math.prod(args[position])


def _adaptive_window(args: Arguments, options: Options, outs: Sequence[Tensor]) -> int:
    small, large = sorted((args[0].numel(), outs[0].numel()))
    return large // max(1, small) + 1


def _taps(count: int) -> TermsRule:
    return lambda args, options, outs: count


def _index_put(args: Arguments, options: Options, outs: Sequence[Tensor]) -> int | Tensor:
    accumulate = args[3] if len(args) > 3 else options.get("accumulate", False)
    if not accumulate:
        return 0
    base, indices, values = args[:3]
    once = torch.ones(base.shape, dtype=torch.float64)
    hits = torch.ones(values.shape, dtype=torch.float64)
    return torch.ops.aten.index_put(once, indices, hits, True)


def _index_add(args: Arguments, options: Options, outs: Sequence[Tensor]) -> Tensor:
    base, dim, index, source = args[:4]
    once = torch.ones(base.shape, dtype=torch.float64)
    return once.index_add(dim, index, torch.ones(source.shape, dtype=torch.float64))


def _scatter(args: Arguments, options: Options, outs: Sequence[Tensor]) -> int | Tensor:
    base, dim, index, source = args[:4]
    how = args[4] if len(args) > 4 else options.get("reduce", "sum")
    if how in ("amax", "amin"):
        return 0
    once = torch.ones(base.shape, dtype=torch.float64)
    return once.scatter_add(dim, index, torch.ones(source.shape, dtype=torch.float64))


def _embedding_rows(args: Arguments, options: Options, outs: Sequence[Tensor]) -> Tensor:
    indices, rows = args[1].flatten(), args[2]
    return torch.bincount(indices, minlength=rows).clamp(min=1).to(torch.float64)[:, None]


def _bag(args: Arguments, options: Options, outs: Sequence[Tensor]) -> int:
    return max(1, args[1].numel())


def _matrix(terms: TermsRule, addend: int | None = None) -> Reduction:
    return Reduction(terms, product=True, addend=addend)


REDUCTIONS: dict[str, Reduction] = {
    **dict.fromkeys(("sum", "nansum", "mean", "trace"), Reduction(_per_result)),
    "prod": Reduction(_per_result, running_product=True),
    "cumsum": Reduction(_length),
    "cumprod": Reduction(_length, running_product=True),
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot"), _matrix(_inner(0))),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _matrix(_inner(1, 1), addend=0)),
    "addbmm": _matrix(_batched_inner, addend=0),
    "_trilinear": _matrix(lambda args, options, outs: math.prod(args[1].shape[1:])),
    "convolution": _matrix(_convolution, addend=2),
    "convolution_backward": _matrix(_convolution_backward),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), Reduction(_window(1))),
    **dict.fromkeys(("avg_pool2d_backward", "avg_pool3d_backward"), Reduction(_window(2))),
    **dict.fromkeys(
        (
            "_adaptive_avg_pool2d",
            "_adaptive_avg_pool3d",
            "_adaptive_avg_pool2d_backward",
            "_adaptive_avg_pool3d_backward",
            "adaptive_max_pool2d_backward",
            "adaptive_max_pool3d_backward",
        ),
        Reduction(_adaptive_window),
    ),
    "max_pool2d_with_indices_backward": Reduction(_window(2)),
    "max_pool3d_with_indices_backward": Reduction(_window(2)),
    "col2im": Reduction(_window(2)),
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), Reduction(_index_put)),
    "index_add": Reduction(_index_add),
    "scatter_add": Reduction(_scatter),
    "scatter_reduce": Reduction(_scatter),
    "embedding_dense_backward": Reduction(_embedding_rows),
    "_embedding_bag": Reduction(_bag),
    "_embedding_bag_forward_only": Reduction(_bag),
    **{
        f"upsample_{kind}{suffix}": Reduction(_taps(taps), coordinates=True)
        for kind, taps in (
            ("linear1d", 2),
            ("bilinear2d", 4),
            ("bicubic2d", 16),
            ("trilinear3d", 8),
        )
        for suffix in ("", "_backward")
    },
    **{f"upsample_nearest{n}d_backward": Reduction(_adaptive_window) for n in (1, 2, 3)},
    **{
        f"{kind}_pad{n}d_backward": Reduction(_taps(2**n))
        for kind in ("reflection", "replication")
        for n in (1, 2, 3)
    },
}
"""By name of the ATen schema, without namespace, trailing underscore and overload."""
