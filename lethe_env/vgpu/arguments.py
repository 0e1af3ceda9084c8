"""From the values of a Triton launch to the parameters of its PTX kernel, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .machine.launch import Bytes
from .machine.tensor_maps import encode
from .memory import AddressSpace, Pointer
from .ptx.model import UnsupportedError

Argument = Pointer | Bytes | int | float

_TF32 = 11
"""What a tensor map calls f32 that is rounded to tf32."""

_INTEGERS = {f"{sign}{bits}" for sign in "iu" for bits in (1, 8, 16, 32, 64)}


def flatten(
    names: Sequence[str],
    types: Sequence[Any],
    values: Sequence[Any],
    memory: AddressSpace,
    maps: Sequence[Mapping[str, Any]] = (),
) -> list[Argument]:
    """The kernel's own parameters, without the scratch pointers that Triton appends.

    Args:
        names: parameter names of the `@triton.jit` function.
        types: their types as Triton's signature has them: `*fp32`, `i32`, `fp32`, `constexpr`,
            `tensordesc<fp16[64, 64]>`, or a tuple of these.
        values: what the launch passed.
        memory: where tensors get their addresses.
        maps: how tiles of each descriptor are copied, if the hardware does it.

    Returns:
        Pointers, integers (floats below 32 bits as their bit patterns) and floats.

    Raises:
        UnsupportedError: a type that has no place in a parameter list.
    """
    rest = iter(maps)
    found: list[Argument] = []
    for name, kind, value in zip(names, types, values, strict=True):
        _add(found, name, kind, value, memory, rest)
    return found


def _add(
    found: list[Argument],
    name: str,
    kind: Any,
    value: Any,
    memory: AddressSpace,
    maps: Iterator[Mapping[str, Any]],
) -> None:
    if isinstance(kind, tuple):
        for index, (part, item) in enumerate(zip(kind, tuple(value), strict=True)):
            _add(found, f"{name}[{index}]", part, item, memory, maps)
    elif kind == "constexpr":
        return
    elif kind.startswith("*"):
        found.append(_pointer(name, value, memory))
    elif kind.startswith("tensordesc"):
        tiles = next(maps, None)
        if tiles is None:
            found += _descriptor(name, value, memory)
        else:
            found += _tensor_map(name, value, memory, tiles)
    else:
        found.append(_number(kind, value))


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


def _tensor_map(
    name: str, value: Any, memory: AddressSpace, tiles: Mapping[str, Any]
) -> Iterator[Argument]:
    """A tensor descriptor that the hardware uses: its map, then shape and strides."""
    if tiles["fp4_padded"]:
        raise UnsupportedError(f"argument {name} describes elements of 4 bits")
    pointer = memory.pointer(value.base, name)
    size = int(tiles["elem_size"])
    data = encode(
        pointer.address,
        _TF32 if value.round_f32_to_tf32 else int(tiles["elem_type"]),
        [int(length) for length in reversed(value.shape)],
        [int(stride) * size for stride in reversed(value.strides[:-1])],
        [int(length) for length in reversed(tiles["block_size"])],
        int(tiles["swizzle"]),
        value.padding == "nan",
    )
    yield Bytes(data, pointer.address)
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
