"""What an instruction reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

from .model import Address, Dual, Instruction, Negated, Operand, Register, Vector

CARRY = "%cc"
"""The carry flag as a register: `.cc` writes it; `addc`, `subc` and `madc` read it."""

_WITHOUT_RESULT = frozenset(
    {"st", "red", "bra", "brx", "nanosleep", "stmatrix", "cp", "prefetch", "use", "setmaxnreg"}
)
_BARRIERS = frozenset({"bar", "barrier"})
_CARRY_READERS = frozenset({"addc", "subc", "madc"})


def destinations(instruction: Instruction) -> frozenset[str]:
    """Names of the registers that it writes, the carry flag among them."""
    written = set(_registers(instruction.operands[:1])) if _has_result(instruction) else set()
    if "cc" in instruction.opcode:
        written.add(CARRY)
    return frozenset(written - {"_"})


def sources(instruction: Instruction) -> frozenset[str]:
    """Names of the registers that it reads, its guard and the carry flag among them."""
    updates = instruction.opcode[:2] == ("wgmma", "mma_async")
    only_sources = _has_result(instruction) and not updates
    operands = instruction.operands[1:] if only_sources else instruction.operands
    read = set(_registers(operands))
    if instruction.predicate is not None:
        read.add(instruction.predicate.name)
    if instruction.opcode[0] in _CARRY_READERS:
        read.add(CARRY)
    return frozenset(read - {"_"})


def _has_result(instruction: Instruction) -> bool:
    """Whether the first operand is written; unknown opcodes count as writing it."""
    if not instruction.operands:
        return False
    name = instruction.opcode[0]
    if name in _WITHOUT_RESULT or isinstance(instruction.operands[0], Address):
        return False
    if name in _BARRIERS:
        return "red" in instruction.opcode
    if name == "tcgen05":
        return instruction.opcode[1] == "ld"
    if name == "call":
        return isinstance(instruction.operands[0], Vector)
    return True


def _registers(operands: tuple[Operand, ...]) -> Iterator[str]:
    for operand in operands:
        match operand:
            case Register(name):
                yield name
            case Vector(items):
                yield from _registers(items)
            case Address(base, _, further):
                yield from _registers((base, *further))
            case Dual(first, second):
                yield from (first.name, second.name)
            case Negated(register):
                yield register.name
