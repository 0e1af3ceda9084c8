"""Packed arithmetic of which only the lower half matters.

Triton computes 16-bit values in pairs even where it has no second one to pair them with, and leaves
the upper halves to chance.
"""

from __future__ import annotations

from dataclasses import replace

from .dataflow import destinations, sources
from .model import Instruction, Kernel, Register, Vector

_PACKED = {"f16x2": "f16", "bf16x2": "bf16"}
_BY_HALVES = frozenset(("add", "sub", "mul", "fma", "min", "max", "neg", "abs", "ex2", "tanh"))


def without_dead_halves(kernel: Kernel) -> Kernel:
    """The kernel with packed arithmetic cut to the lower half where nobody reads the upper one.

    What lies in the upper half of such a register afterwards is not what it was before.
    """
    dead = _dead(kernel)
    if not dead:
        return kernel
    body = [
        replace(item, opcode=_lower_half(item.opcode)) if item.index in dead else item
        for item in kernel.body
    ]
    return replace(kernel, body=tuple(body))


def _lower_half(opcode: tuple[str, ...]) -> tuple[str, ...]:
    return (*opcode[:-1], _PACKED[opcode[-1]])


def _dead(kernel: Kernel) -> frozenset[int]:
    """Indices of instructions whose upper halves are computed for nobody.

    The greatest such set: an instruction is in it if all that reads its result is in it, or takes
    the lower half out.
    """
    found = {
        item.index
        for item in kernel.body
        if item.opcode[-1] in _PACKED and item.opcode[0] in _BY_HALVES
    }
    while found:
        readers = (item for item in kernel.body if item.index not in found)
        wanted = frozenset[str]().union(*map(_read_whole, readers))
        kept = {index for index in found if destinations(kernel.body[index]).isdisjoint(wanted)}
        if kept == found:
            break
        found = kept
    return frozenset(found)


def _read_whole(instruction: Instruction) -> frozenset[str]:
    """Registers of which an instruction may read more than 16 bits."""
    match instruction:
        case Instruction(opcode=("mov", "b32"), operands=(Vector((_, Register("_"))), Register())):
            return frozenset()
        case Instruction(opcode=("cvt", "u16" | "s16", "u32" | "s32")):
            return frozenset()
    return sources(instruction)
