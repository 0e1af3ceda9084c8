"""Which registers may hold a value that depends on what certain loads read."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from ..ptx.dataflow import destinations, sources
from ..ptx.model import Instruction, Kernel

STEERING = frozenset(
    """
    bra brx ret exit trap brkpt bar barrier call vote match elect activemask nanosleep fence membar
    """.split()  # noqa: SIM905 - as in the table of computing opcodes
)
"""Opcodes that decide what happens, or what other lanes see; a value given to one is used."""

_ACCESSES = frozenset(("ld", "st", "atom", "red", "cp", "ldmatrix", "stmatrix", "prefetch"))
_LATER = (("st", "async"), ("red", "async"))
_SHARED = frozenset(("shared", "shared::cta", "shared::cluster"))


@dataclass(frozen=True, slots=True)
class Taint:
    """Where a value may go."""

    registers: frozenset[str]
    shared: bool
    """Whether it may lie in shared memory."""


def is_access(instruction: Instruction) -> bool:
    """Whether it has an address, which no value but a used one can steer."""
    return instruction.opcode[0] in _ACCESSES


def is_shared(instruction: Instruction) -> bool:
    """Whether the memory is shared memory; of a copy, whether its target is.

    What copies of tiles move is not followed, and what comes later to another block is used.
    """
    if "bulk" in instruction.opcode or instruction.opcode[:2] in _LATER:
        return False
    return not _SHARED.isdisjoint(instruction.opcode) or "matrix" in instruction.opcode[0]


def data_sources(instruction: Instruction) -> frozenset[str]:
    """The registers that it reads as operands: all but its guard."""
    return sources(replace(instruction, predicate=None))


def taint(kernel: Kernel, loads: Set[int]) -> Taint:
    """Where what certain loads from global memory bring may go, in registers and shared memory.

    Args:
        kernel: The kernel.
        loads: Positions of `ld` and of `cp.async` in its body.
    """
    registers: set[str] = set()
    shared = False
    before = None
    while before != (len(registers), shared):
        before = len(registers), shared
        for instruction in kernel.body:
            tainted = not registers.isdisjoint(sources(instruction))
            if instruction.index in loads:
                shared = shared or instruction.opcode[0] == "cp"
                registers |= destinations(instruction)
            elif is_access(instruction):
                shared = shared or (tainted and is_shared(instruction))
                if shared and is_shared(instruction):
                    registers |= destinations(instruction)
            elif tainted and instruction.opcode[0] not in STEERING:
                registers |= destinations(instruction)
    return Taint(frozenset(registers), shared)
