"""What a call returned: flattened, checked, and traced to whose memory it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .protocol import DTYPES, dtype_name

LEAVES = 256
"""Most tensors one call may return."""


class UnacceptableError(Exception):
    """The candidate returned something that is not a tensor or a nest of tensors."""


@dataclass(frozen=True)
class Leaf:
    """One tensor among the outputs, and what it is called."""

    path: str
    tensor: torch.Tensor


def flatten(value: Any) -> list[Leaf]:
    """The tensors of a nested output, in order.

    Raises:
        UnacceptableError: there is something else in it, or too much of it.
    """
    leaves = []
    for leaf in _leaves(value, "output", 0):
        leaves.append(leaf)
        if len(leaves) > LEAVES:
            raise UnacceptableError(f"more than {LEAVES} tensors were returned")
    return leaves


def _leaves(value: Any, path: str, depth: int) -> Iterator[Leaf]:
    if depth > 8:
        raise UnacceptableError(f"{path} is nested more than 8 levels deep")
    match value:
        case None:
            return
        case torch.Tensor():
            yield Leaf(path, _plain(value, path))
        case bool():
            yield Leaf(path, torch.tensor(value))
        case int() | float():
            dtype = torch.int64 if isinstance(value, int) else torch.float64
            try:
                yield Leaf(path, torch.tensor(value, dtype=dtype))
            except (RuntimeError, ValueError) as error:
                raise UnacceptableError(f"{path} is an integer beyond 64 bits") from error
        case tuple() | list():
            for index, item in enumerate(value):
                yield from _leaves(item, f"{path}[{index}]", depth + 1)
        case dict():
            for key, item in value.items():
                yield from _leaves(item, f"{path}[{key!r}]"[:200], depth + 1)
        case _:
            raise UnacceptableError(
                f"{path} is of type {type(value).__name__}; return tensors, or tuples, lists or "
                "dictionaries of tensors"
            )


def _plain(tensor: torch.Tensor, path: str) -> torch.Tensor:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise UnacceptableError(f"{path} is a tensor subclass ({type(tensor).__name__})")
    if tensor.layout != torch.strided:
        raise UnacceptableError(f"{path} has the layout {tensor.layout}; return a dense tensor")
    if tensor.device.type == "meta":
        raise UnacceptableError(f"{path} is a meta tensor: it has no values")
    if dtype_name(tensor.dtype) not in DTYPES:
        raise UnacceptableError(f"{path} has the dtype {tensor.dtype}, which is not supported")
    return tensor


class Owners:
    """Whose memory is whose, by storage address."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """The tensor's storage belongs to `name`, unless it is known already."""
        storage = tensor.untyped_storage()
        if storage.nbytes():
            self._owners.setdefault(storage.data_ptr(), name)

    def of(self, tensor: torch.Tensor) -> str | None:
        """Whose memory the tensor lies in; `None` if it is its own."""
        return self._owners.get(tensor.untyped_storage().data_ptr())
