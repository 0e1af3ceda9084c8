"""Tensors as the DSL's host functions take them: an address, then what nobody knew before."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..memory import AddressSpace


@dataclass(frozen=True, slots=True)
class Extent:
    """A length or a stride, in elements."""

    value: int | None
    """`None`: it comes with the argument."""
    bits: int = 64
    divisor: int = 1
    """What the compiler was promised to divide it."""

    def admits(self, value: int) -> bool:
        """Whether it may have this value."""
        if self.value is not None:
            return value == self.value
        return value % self.divisor == 0 and value < 1 << (self.bits - 1)


@dataclass(frozen=True, slots=True)
class TensorType:
    """What a host function was compiled for in place of one tensor."""

    name: str
    element: str
    """Of torch's dtypes, without `torch.` and underscores."""
    shape: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    align_bytes: int

    def check(self, tensor: torch.Tensor) -> None:
        """Hold a tensor to it.

        Raises:
            ValueError: type, shape, strides or alignment differ; says which.
        """
        found = str(tensor.dtype).removeprefix("torch.")
        if found.replace("_", "") != self.element:
            raise ValueError(f"{self.name} is {found}; the kernel was compiled for {self.element}")
        # A stride along a length of one leads nowhere.
        strides = [
            extent.value if length == 1 and extent.value is not None else stride
            for extent, length, stride in zip(
                self.strides, tensor.shape, tensor.stride(), strict=False
            )
        ]
        for what, given, expected in (
            ("shape", tensor.shape, self.shape),
            ("strides", strides, self.strides),
        ):
            fits = len(given) == len(expected)
            if not fits or not all(map(Extent.admits, expected, given)):
                raise ValueError(
                    f"{self.name} has the {what} {tuple(given)}; the kernel was compiled for "
                    f"({', '.join(map(_text, expected))})"
                )
        if tensor.data_ptr() % self.align_bytes:
            raise ValueError(
                f"{self.name} does not begin at a multiple of {self.align_bytes} bytes, which the "
                "kernel was compiled for"
            )


def _text(extent: Extent) -> str:
    if extent.value is not None:
        return str(extent.value)
    return "any" if extent.divisor == 1 else f"a multiple of {extent.divisor}"


def tensor_type(name: str, placeholder: Any) -> TensorType:
    """The type of a tensor that a host function is compiled with.

    Args:
        name: of the host function's parameter.
        placeholder: a fake tensor of the DSL.
    """
    return TensorType(
        name=name,
        element=_element(placeholder.element_type),
        shape=tuple(map(_extent, placeholder.shape)),
        strides=tuple(map(_extent, placeholder.stride)),
        align_bytes=int(placeholder._assumed_align),
    )


def _extent(size: Any) -> Extent:
    if isinstance(size, int):
        return Extent(size)
    return Extent(None, int(size.width), int(size.divisibility))


def _element(numeric: Any) -> str:
    """Of torch: the DSL's `BFloat16` is torch's `bfloat16`."""
    return str(numeric.__name__).lower()


class DeviceTensor:
    """A tensor's packed form, with its address in the virtual GPU's memory.

    The DSL takes every argument that has `__c_pointers__` as it is.
    """

    def __init__(self, type_: TensorType, tensor: torch.Tensor, memory: AddressSpace) -> None:
        type_.check(tensor)
        self.pointer = memory.pointer(tensor, type_.name)
        sizes = [*zip(type_.shape, tensor.shape, strict=True),
                 *zip(type_.strides, tensor.stride(), strict=True)]  # fmt: skip
        self._data = ctypes.create_string_buffer(_packed(self.pointer.address, sizes))

    def __c_pointers__(self) -> list[int]:
        return [ctypes.addressof(self._data)]


def _packed(address: int, sizes: Sequence[tuple[Extent, int]]) -> bytes:
    unknown = [(extent.bits, size) for extent, size in sizes if extent.value is None]
    form = "".join("i" if bits == 32 else "q" for bits, _ in unknown)
    return struct.pack(f"@Q{form}", address, *(size for _, size in unknown))
