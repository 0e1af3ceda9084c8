"""What a kernel's tensor-core instructions multiply, and how much."""

from __future__ import annotations

import re

from ..alu.long_sums import FACTORS
from ..ptx.model import Instruction, Kernel
from .instruction_descriptors import shape_of

_WARPS_OF_GROUP = 4


def tensor_operations(kernel: Kernel, instruction: Instruction) -> int:
    """Multiplications and additions that one warp's execution of an instruction stands for."""
    if instruction.opcode[:2] == ("tcgen05", "mma"):
        shape = shape_of(kernel, instruction)
        depth = FACTORS[shape.left].depth if shape is not None else 0
        return 2 * shape.rows * shape.columns * depth if shape is not None else 0
    sizes = (re.fullmatch(r"m(\d+)n(\d+)k(\d+)", part) for part in instruction.opcode)
    found = next((size for size in sizes if size is not None), None)
    if found is None:
        return 0
    operations = 2 * int(found[1]) * int(found[2]) * int(found[3])
    return operations // (_WARPS_OF_GROUP if instruction.opcode[0] == "wgmma" else 1)


def tensor_type(kernel: Kernel) -> str:
    """Type of the factors on tensor cores, of the first kind in the kernel; empty without any."""
    for instruction in kernel.body:
        match instruction.opcode:
            case ("mma", *_, left, _, _):
                return left
            case ("wgmma", "mma_async", *_, left, _):
                return left
            case ("tcgen05", "mma", *_):
                shape = shape_of(kernel, instruction)
                return shape.left if shape is not None else ""
    return ""
