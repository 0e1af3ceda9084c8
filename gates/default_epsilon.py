"""The epsilon of an RMS norm that is given none: PyTorch takes that of the input's dtype."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

_EPSILON = 3
"""Its place among the arguments."""


class DefaultEpsilon(TorchFunctionMode):
    """Runs a float64 copy of a module with the epsilon that the module has in its own dtype.

    Float64's own is nine orders of magnitude smaller, which is another function of small inputs.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        """Prepare.

        Args:
            dtype: what the module is judged in; one that is not floating changes nothing.
        """
        super().__init__()
        self._epsilon = torch.finfo(dtype).eps if dtype.is_floating_point else None

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Pass on, with the epsilon filled in."""
        kwargs = dict(kwargs or {})
        if func in (torch.rms_norm, F.rms_norm):
            given = args[_EPSILON] if len(args) > _EPSILON else kwargs.get("eps")
            args = args[:_EPSILON]
            kwargs["eps"] = self._epsilon if given is None else given
        return func(*args, **kwargs)
