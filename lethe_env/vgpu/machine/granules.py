"""How many bytes one cell of the sanitizer stands for."""

from __future__ import annotations

from ..ptx.model import Immediate, Kernel
from .registers import element_type
from .units import uses_units

_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


def granule_bits(kernel: Kernel, space: str) -> int:
    """Logarithm of the bytes a cell stands for: what the narrowest access moves.

    In global memory an element counts, since a tensor may begin anywhere, and four bytes are the
    most; so they are where units access shared memory. PTX wants all others aligned to what they
    move there, which is 16 bytes at most.
    """
    shared = space == "shared"
    sizes = [16 if shared and not uses_units(kernel) else 4]
    for instruction in kernel.body:
        opcode = instruction.opcode
        if opcode[0] in ("ld", "st", "atom", "red") and _may_access(opcode, space):
            bits = int(element_type(opcode[-1])[1:])
            count = next((n for name, n in _VECTORS.items() if name in opcode), 1)
            sizes.append(bits * (count if shared else 1) // 8)
        elif "bulk" in opcode:
            # A tile may begin at any element; of 8-bit ones, neighbours rarely share a cell.
            sizes.append(4 if shared else 2)
        elif opcode[:2] == ("cp", "async") and shared and len(instruction.operands) > 2:
            size = instruction.operands[2]
            sizes.append(size.value if isinstance(size, Immediate) else 4)
    return min(sizes).bit_length() - 1


def _may_access(opcode: tuple[str, ...], space: str) -> bool:
    """Whether an opcode names the state space, or none."""
    named = [part.split("::")[0] for part in opcode]
    named = [part for part in named if part in ("global", "shared", "local", "param", "const")]
    return named in ([], [space])
