"""Kernels whose blocks leave the same behind in any order, unless they meet in memory."""

from __future__ import annotations

from ..ptx.dataflow import destinations, sources
from ..ptx.model import Instruction, Kernel, Register

_ORDERED = frozenset(("volatile", "relaxed", "acquire", "release"))
_COMMUTATIVE = frozenset(("add", "min", "max", "and", "or", "xor"))
_CLOCKS = frozenset(("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo"))
_PRIVATE = frozenset(("shared", "shared::cta", "local", "param", "const"))


def meets_only_in_memory(kernel: Kernel) -> bool:
    """Whether only plain accesses of two blocks to one place can make their order matter.

    Atomic operations on one place may be made by many blocks: they must be integer operations of
    one kind that commute, and what they return must not be used. Messages, clocks, and loads and
    stores that are themselves ordered are taken to depend on the order.
    """
    read = frozenset().union(*(sources(instruction) for instruction in kernel.body))
    kinds = set()
    for instruction in kernel.body:
        name = instruction.opcode[0]
        if name == "call" or any(_is_clock(operand) for operand in instruction.operands):
            return False
        if not _PRIVATE.isdisjoint(instruction.opcode):
            continue
        if name in ("ld", "st") and not _ORDERED.isdisjoint(instruction.opcode):
            return False
        if name in ("atom", "red"):
            if not _commutes(instruction) or not destinations(instruction).isdisjoint(read):
                return False
            kinds.add(_kind(instruction))
    return len(kinds) <= 1


def writes_blindly(kernel: Kernel) -> bool:
    """Whether a launch can be repeated on what it left behind, if it loads nothing that it stores.

    Then its blocks store the same, whatever was there. Atomic operations read what they change, and
    a launch that ends early leaves something out.
    """
    return not any(
        instruction.opcode[0] in ("trap", "brkpt", "call")
        or (instruction.opcode[0] in ("atom", "red") and _PRIVATE.isdisjoint(instruction.opcode))
        for instruction in kernel.body
    )


def _is_clock(operand: object) -> bool:
    return isinstance(operand, Register) and operand.name in _CLOCKS


def _commutes(instruction: Instruction) -> bool:
    _, *modifiers, type_ = instruction.opcode
    return type_[0] in "usb" and "bf" not in type_ and not _COMMUTATIVE.isdisjoint(modifiers)


def _kind(instruction: Instruction) -> tuple[frozenset[str], str]:
    """Operation and type; sums do not care about signs."""
    operations = _COMMUTATIVE.intersection(instruction.opcode)
    type_ = instruction.opcode[-1]
    return operations, type_[1:] if "add" in operations else type_
