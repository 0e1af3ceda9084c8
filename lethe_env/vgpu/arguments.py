"""From the values of a Triton launch to the parameters of its PTX kernel, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .memory import AddressSpace, Pointer
from .ptx.model import UnsupportedError

Argument = Pointer | int | float

_INTEGERS = {f"{sign}{bits}" for sign in "iu" for bits in (1, 8, 16, 32, 64)}


def flatten(
    names: Sequence[str], types: Sequence[Any], values: Sequence[Any], memory: AddressSpace
) -> Iterator[Argument]:
    """The kernel's own parameters, without the scratch pointers that Triton appends.

    Args:
        names: parameter names of the `@triton.jit` function.
        types: their types as Triton's signature has them: `*fp32`, `i32`, `fp32`, `constexpr`,
            `tensordesc<fp16[64, 64]>`, or a tuple of these.
        values: what the launch passed.
        memory: where tensors get their addresses.

    Yields:
        Pointers, integers (floats below 32 bits as their bit patterns) and floats.

    Raises:
        UnsupportedError: a type that has no place in a parameter list.
    """
    for name, kind, value in zip(names, types, values, strict=True):
        yield from _parameter(name, kind, value, memory)


def _parameter(name: str, kind: Any, value: Any, memory: AddressSpace) -> Iterator[Argument]:
    if isinstance(kind, tuple):
        names = [f"{name}[{index}]" for index in range(len(kind))]
        yield from flatten(names, kind, tuple(value), memory)
    elif kind == "constexpr":
        return
    elif kind.startswith("*"):
        yield _pointer(name, value, memory)
    elif kind.startswith("tensordesc"):
        yield from _descriptor(name, value, memory)
    else:
        yield _number(kind, value)


def _pointer(name: str, value: Any, memory: AddressSpace) -> Pointer:
    tensor = value if isinstance(value, torch.Tensor) else getattr(value, "base", None)
    if not isinstance(tensor, torch.Tensor):
        raise UnsupportedError(f"argument {name} is a pointer but no tensor")
    return memory.pointer(tensor, name)


def _descriptor(name: str, value: Any, memory: AddressSpace) -> Iterator[Argument]:
    """A tensor descriptor where no hardware descriptor is used: Triton passes its parts.

    Shape and strides come twice, as the parts of the lowered descriptor and as those of the
    Python object (see `expand_signature` of Triton's NVIDIA driver).
    """
    yield memory.pointer(value.base, name)
    yield from (int(number) for number in (*value.shape, *value.strides))
    yield int(value.padding == "nan")
    yield int(value.round_f32_to_tf32)
    yield from (int(number) for number in (*value.shape, *value.strides))


def _number(kind: str, value: Any) -> int | float:
    if kind in _INTEGERS:
        return int(value)
    with np.errstate(over="ignore"):
        match kind:
            case "fp16":
                return int(np.float16(value).view(np.uint16))
            case "bf16":
                bits = torch.tensor(float(value), dtype=torch.bfloat16).view(torch.int16)
                return int(bits) & 0xFFFF
            case "fp32" | "f32":
                return float(np.float32(value))
            case "fp64":
                return float(value)
    raise UnsupportedError(f"a kernel parameter of type {kind}")
