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
    return (instruction.accessed or _find(instruction))[0]


def sources(instruction: Instruction) -> frozenset[str]:
    """Names of the registers that it reads, its guard and the carry flag among them."""
    return (instruction.accessed or _find(instruction))[1]


def _find(instruction: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """What an instruction writes and reads; kept in it, as every analysis asks again."""
    results = int(_has_result(instruction))
    updates = instruction.opcode[:2] == ("wgmma", "mma_async")
    written = set(_registers(instruction.operands[:results]))
    read = set(_registers(instruction.operands[0 if updates else results :]))
    if "cc" in instruction.opcode:
        written.add(CARRY)
    if instruction.predicate is not None:
        read.add(instruction.predicate.name)
    if instruction.opcode[0] in _CARRY_READERS:
        read.add(CARRY)
    found = frozenset(written - {"_"}), frozenset(read - {"_"})
    object.__setattr__(instruction, "accessed", found)
    return found


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
