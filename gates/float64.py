"""Float64Mode: a module's own arithmetic, carried out in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
"""Dtypes that become wider under the mode. Integers and float8, a quantisation, stay."""


class Float64Mode(TorchDispatchMode):
    """Runs PyTorch code in float64 whatever dtypes it asks for.

    Casts, factories and `dtype=` arguments that name a narrower floating dtype yield float64
    (complex128), and so do tensors that were narrower before. Attention takes its unfused path,
    because a fused one hides its operations. Views and in-place writes of a narrower tensor made
    outside the mode leave that tensor's dtype alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._settings = ExitStack()

    def __enter__(self) -> Float64Mode:
        if self._depth == 0:
            self._settings.callback(torch.set_default_dtype, torch.get_default_dtype())
            self._settings.callback(
                torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled()
            )
            self._settings.enter_context(sdpa_kernel(SDPBackend.MATH))
            torch.set_default_dtype(torch.float64)
            torch.backends.mha.set_fastpath_enabled(False)
        self._depth += 1
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._depth -= 1
        if self._depth == 0:
            self._settings.close()

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Widen what goes in, run the operation, widen what comes out."""
        kwargs = dict(kwargs or {})
        self.observe(func, kwargs)
        if is_view(func):
            out = func(*args, **kwargs)
            return _widen(out) if func is torch.ops.aten.lift_fresh.default else out
        if not func._schema.is_mutable:
            args, kwargs = tree_map(_widen, (tuple(args), kwargs))
            if kwargs.get("dtype") in WIDER:
                kwargs["dtype"] = WIDER[kwargs["dtype"]]
            return tree_map(_widen, self.compute(func, args, kwargs))
        return self.compute(func, args, kwargs)

    def observe(self, func: OpOverload, kwargs: Mapping[str, Any]) -> None:
        """See an operation as the module asked for it, before dtypes are widened."""

    def compute(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Carry out one operation on widened arguments."""
        return func(*args, **kwargs)


def is_view(func: OpOverload) -> bool:
    """Whether a result shares memory with an argument that is not written."""
    aliases = [result.alias_info for result in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _widen(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype in WIDER:
        return value.to(WIDER[value.dtype])
    return value
