"""The dtype that references run in."""

from __future__ import annotations

import torch
from torch import Tensor


def require_float64(**tensors: Tensor) -> None:
    """Refuse anything but float64, so that a reference is never taken for a kernel.

    Raises:
        TypeError: a tensor of another dtype, by the name it was passed under.
    """
    for name, tensor in tensors.items():
        if tensor.dtype is not torch.float64:
            raise TypeError(
                f"{name} is {tensor.dtype}: this is the float64 reference; "
                "widen its inputs with .double(), or call the kernel"
            )
