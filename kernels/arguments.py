"""Checks of tensors that kernels take, and views of them that kernels can walk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def check_operands(
    operation: str, tensors: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int | str]]
) -> dict[str, int]:
    """Hold tensors to their shapes, and find the sizes.

    Args:
        operation: Name for messages.
        tensors: By argument name.
        shapes: For each tensor its sizes; a size given by name must be the same wherever it is
            named, and at least 1.

    Returns:
        Sizes by name.

    Raises:
        TypeError: a dtype that the kernel cannot widen to float32.
        ValueError: a shape that does not fit the others, or tensors on several devices.
    """
    sizes: dict[str, int] = {}
    owner: dict[str, str] = {}
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES:
            known = ", ".join(map(str, DTYPES))
            raise TypeError(f"{operation}: {name} is {tensor.dtype}; the kernel takes {known}")
        expected = shapes[name]
        if tensor.ndim != len(expected):
            raise ValueError(
                f"{operation}: {name} has shape {tuple(tensor.shape)}, "
                f"expected ({', '.join(map(str, expected))})"
            )
        for size, wanted in zip(tensor.shape, expected, strict=True):
            if isinstance(wanted, str):
                if size < 1:
                    raise ValueError(f"{operation}: {name} has no elements ({wanted} is {size})")
                owner.setdefault(wanted, name)
                wanted_size, why = sizes.setdefault(wanted, size), f" as in {owner[wanted]}"
            else:
                wanted_size, why = wanted, ""
            if size != wanted_size:
                raise ValueError(
                    f"{operation}: {name} has shape {tuple(tensor.shape)}, but "
                    f"{wanted} is {wanted_size}{why}"
                )
    devices = {name: tensor.device for name, tensor in tensors.items()}
    if len(set(devices.values())) > 1:
        listed = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ValueError(f"{operation}: all tensors must lie on one device, not {listed}")
    return sizes


def dense_rows(tensor: Tensor) -> Tensor:
    """The tensor if its last dimension is dense, else a dense copy."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()
