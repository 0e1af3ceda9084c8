"""Products in which an exact zero wins over NaN and infinity.

IEEE 754 says 0 · NaN = NaN. A kernel that knows a factor to be zero, a hidden key of an attention
or the empty half of a triangular matrix, is free to skip it, and then the NaN beside it never
shows. The padding of a convolution is such a zero: one kernel skips it, another multiplies every
weight with it, and a transposed convolution is written both as a scatter, which meets none, and as
a gather from a masked input, which does. All of these conventions are in use, so where they
disagree a candidate is not charged.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .decompositions import decomposition_of

aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.bmm.default, aten.mv.default)


class ZeroAnnihilates(TorchDispatchMode):
    """Runs a module with products and convolutions that skip terms with an exact zero."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _PRODUCTS:
            return _skipping(func, *args)
        if func is aten.convolution.default:
            return _skipping_convolution(*args)
        decomposition = decomposition_of(func)
        if decomposition is None:
            return func(*args, **kwargs)
        with self:
            return decomposition(*args, **kwargs)


class PaddingCounts(TorchDispatchMode):
    """Runs a module with convolutions in which every weight meets every output, if only as zero."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is not aten.convolution.default:
            return out
        padding, transposed, groups = args[4], args[6], args[8]
        if not (transposed or any(padding)):
            return out
        broken = _broken_channels(args[1], transposed, groups)
        return torch.where(broken.view(-1, *[1] * (out.dim() - 2)), torch.nan, out)


def _broken_channels(weight: torch.Tensor, transposed: bool, groups: int) -> torch.Tensor:
    """Which output channels have a weight that is not finite."""
    broken = ~weight.isfinite().flatten(2).all(-1)
    if not transposed:
        return broken.any(1)
    return broken.view(groups, -1, weight.shape[1]).any(1).flatten()


def _skipping_convolution(
    image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *options: Any
) -> torch.Tensor:
    def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return aten.convolution.default(left, right, None, *options)

    out = _skipping(product, image, weight)
    return out if bias is None else out + bias.view(-1, *[1] * (out.dim() - 2))


def _skipping(product: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = product(left, right)
    if out.isfinite().all():
        return out

    def met(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        return product(one.double(), two.double()) > 0

    nan = met(left.isnan(), right != 0) | met(left != 0, right.isnan())
    up = met(left.isposinf(), right > 0) | met(left > 0, right.isposinf())
    up |= met(left.isneginf(), right < 0) | met(left < 0, right.isneginf())
    down = met(left.isposinf(), right < 0) | met(left < 0, right.isposinf())
    down |= met(left.isneginf(), right > 0) | met(left > 0, right.isneginf())
    finite = product(left.nan_to_num(0.0, 0.0, 0.0), right.nan_to_num(0.0, 0.0, 0.0))
    result = torch.where(up, torch.inf, torch.where(down, -torch.inf, finite))
    return torch.where(nan | (up & down), torch.nan, result)
