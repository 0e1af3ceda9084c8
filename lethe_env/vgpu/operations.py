"""Torch operations as a GPU would run them eagerly: each a kernel of its own.

Used on both sides: for what a reference asks of eager PyTorch, and for what a candidate computes
with torch outside its kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

_ALLOCATIONS = frozenset(
    ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
)
_FREE = _ALLOCATIONS | {"detach", "alias", "lift_fresh", "lift", "_unsafe_view", "set_"}
"""Operations that move no data."""
_OVERWRITING = frozenset(
    ("fill_", "zero_", "copy_", "uniform_", "normal_", "bernoulli_", "random_", "exponential_")
)
"""Operations in place that do not read what they write to."""
_LOOKUPS = frozenset(["embedding", "index", "index_select", "gather", "take", "take_along_dim"])
"""Operations that read no more of their first operand than they return."""
_CONVOLUTIONS = frozenset(("convolution", "_convolution", "convolution_backward"))
_ATTENTION_ON_CPU = "_scaled_dot_product_flash_attention_for_cpu"
_UNITS = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call of an aten operation."""

    name: str
    bytes: int
    """Of the operands read and the results written, each once."""
    operations: Mapping[str, int] = field(default_factory=dict)
    """Multiplications and additions of products, by the unit that does them; empty elsewhere."""


class OperationLog(TorchDispatchMode):
    """While active, notes every aten operation that launches a kernel in eager PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self._paused = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call through, then note what was moved and computed."""
        keywords = kwargs or {}
        result = func(*args, **keywords)
        name = func._schema.name.removeprefix("aten::")
        if not (self._paused or func.is_view or name in _FREE):
            self.operations.append(_operation(func, name, args, keywords, result))
        return result

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Notes nothing meanwhile."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before


def operations_of(call: Callable[[], object]) -> tuple[Operation, ...]:
    """The operations that a call runs."""
    with OperationLog() as log:
        call()
    return tuple(log.operations)


def _operation(
    func: Any, name: str, args: tuple[Any, ...], keywords: Mapping[str, Any], result: Any
) -> Operation:
    given = [t for t in tree_leaves([args, dict(keywords)]) if isinstance(t, torch.Tensor)]
    written = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
    read = given
    if name in _OVERWRITING and given:
        read = given[1:]
    read_bytes = [_held_bytes(tensor) for tensor in read]
    written_bytes = sum(map(_held_bytes, written))
    if name in _LOOKUPS and read_bytes:
        read_bytes[0] = min(read_bytes[0], written_bytes)
    count = _products(func, name, args, keywords, result)
    unit = _unit(name, given)
    return Operation(
        name=name,
        bytes=sum(read_bytes) + written_bytes,
        operations={unit: count} if count and unit else {},
    )


def _held_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the elements that exist, an expanded one counted once."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * math.prod(s if step else min(s, 1) for s, step in sizes)


def _products(
    func: Any, name: str, args: tuple[Any, ...], keywords: Mapping[str, Any], result: Any
) -> int:
    if name == _ATTENTION_ON_CPU:
        return int(sdpa_flop_count(*(tensor.shape for tensor in args[:3])))
    formula = flop_registry.get(func._overloadpacket)
    return 0 if formula is None else int(formula(*args, **keywords, out_val=result))


def _unit(name: str, operands: list[torch.Tensor]) -> str:
    """Which unit multiplies: PyTorch's defaults allow TF32 in convolutions, not in products."""
    dtype = next((t.dtype for t in operands if t.is_floating_point()), None)
    if name in _CONVOLUTIONS and dtype == torch.float32:
        return "tf32"
    return _UNITS.get(dtype, "")
