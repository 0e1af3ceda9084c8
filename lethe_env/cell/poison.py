"""Memory that nobody wrote is made conspicuous: NaN, a large odd integer, or true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

UNINITIALISED: frozenset[Callable[..., Any]] = frozenset(
    {
        torch.empty,
        torch.empty_like,
        torch.empty_strided,
        torch.empty_permuted,
        torch.Tensor.new_empty,
        torch.Tensor.new_empty_strided,
    }
)
"""Functions that return memory as they find it."""

_PATTERNS = {1: 0x5B, 2: 0x5BA5, 4: 0x5BA55BA5, 8: 0x5BA55BA55BA55BA5}


def poison(tensor: torch.Tensor) -> None:
    """Overwrite the tensor with a value that no kernel computes by accident."""
    with torch.no_grad(), torch._C._DisableTorchDispatch():  # nobody is to see it as work
        if tensor.dtype == torch.bool:
            tensor.fill_(True)
        elif tensor.is_complex():
            tensor.fill_(complex(float("nan"), float("nan")))
        elif tensor.is_floating_point() and tensor.element_size() == 1:
            tensor.view(torch.uint8).fill_(0x80 if "fnuz" in str(tensor.dtype) else 0x7F)
        elif tensor.is_floating_point():
            tensor.fill_(float("nan"))
        else:
            tensor.fill_(_PATTERNS[tensor.element_size()])


class PoisonMode(TorchFunctionMode):
    """While active, fresh uninitialised tensors are poisoned."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call through; poison what comes out of an allocation."""
        result = func(*args, **(kwargs or {}))
        if func in UNINITIALISED:
            poison(result)
        return result
