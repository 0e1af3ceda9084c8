"""Products in which an exact zero wins over NaN and infinity.

IEEE 754 says 0 · NaN = NaN. A kernel that knows a factor to be zero, a hidden key of an attention
or the empty half of a triangular matrix, is free to skip it, and then the NaN beside it never
shows. Both conventions are in use, so where they disagree a candidate is not charged.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .decompositions import decomposition_of

_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.mv.default)


class ZeroAnnihilates(TorchDispatchMode):
    """Runs a module with matrix products that skip terms with an exact zero."""

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
        decomposition = decomposition_of(func)
        if decomposition is None:
            return func(*args, **kwargs)
        with self:
            return decomposition(*args, **kwargs)


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
