"""How undefined bits spread from the operands of a computing instruction to its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..ptx.dataflow import destinations
from ..ptx.model import Dual, Immediate, Instruction, Operand, Register, Vector
from .taint import data_sources
from .tracker import DEFINED, UNDEFINED, Tracker

Rule = Callable[[Tracker, Instruction], bool]
"""Writes the shadows of the results; false where it does not cover the instruction."""

_INTEGERS = frozenset(f"{kind}{bits}" for kind in "sub" for bits in (8, 16, 32, 64))
_PACKED = frozenset(("f16x2", "bf16x2", "s16x2", "u16x2"))
_PAIRWISE = frozenset(("add", "sub", "mul", "fma", "min", "max", "neg", "abs", "ex2", "tanh"))
_ONES = {
    "f16": 0x3C003C00,
    "bf16": 0x3F803F80,
    "tf32": 0x3F800000,
    "f64": 0x3FF0000000000000,
    "s8": 0x01010101,
    "u8": 0x01010101,
}
"""Register contents of a factor of ones, by the type of its elements."""


def compute(tracker: Tracker, instruction: Instruction) -> None:
    """Write the shadows of all results of an instruction that is no access and steers nothing."""
    rule = _RULES.get(instruction.opcode[0])
    if rule is None or not rule(tracker, instruction):
        packed = instruction.opcode[-1] in _PACKED and instruction.opcode[0] in _PAIRWISE
        (_by_halves if packed else _as_a_whole)(tracker, instruction)
    tracker.add_guard()


def _as_a_whole(tracker: Tracker, instruction: Instruction) -> None:
    """Any undefined operand makes the results undefined."""
    names = sorted(data_sources(instruction))
    flag = tracker.flag(tracker.shadow(Register(name)) for name in names)
    for name in sorted(destinations(instruction)):
        tracker.set_all(name, flag)


def _by_halves(tracker: Tracker, instruction: Instruction) -> None:
    """Operations on packed pairs of 16 bits keep the two apart."""
    target, *sources = instruction.operands
    halves: tuple[list[Operand], list[Operand]] = ([], [])
    for source in sources:
        shadow = tracker.shadow(source)
        if isinstance(shadow, Register):
            parts = tracker.temporary("b16"), tracker.temporary("b16")
            tracker.emit("mov.b32", Vector(parts), shadow)
            for half, part in zip(halves, parts, strict=True):
                half.append(part)
    _join(tracker, target, [tracker.flag(half) for half in halves])


def _join(tracker: Tracker, target: Operand, flags: Sequence[Register | None]) -> None:
    """Make the lower and the upper half of a register undefined where the flags hold."""
    parts: list[Operand] = []
    for flag in flags:
        part = tracker.temporary("b16")
        if flag is None:
            tracker.emit("mov.b16", part, DEFINED)
        else:
            tracker.emit("selp.b16", part, UNDEFINED, DEFINED, flag)
        parts.append(part)
    tracker.guarded(("mov", "b32"), tracker.target(target), Vector(tuple(parts)))


def _move(tracker: Tracker, instruction: Instruction, control: Sequence[int] = ()) -> bool:
    """The shadow goes the way of the value, if what controls the way is defined.

    Args:
        tracker: Where to write.
        instruction: What moves bits.
        control: Positions of the operands that are no data.
    """
    operands = instruction.operands
    if any(k < len(operands) and tracker.is_tainted(operands[k]) for k in control):
        return False
    moved = [o if k in control else tracker.shadow(o) for k, o in enumerate(operands)]
    tracker.guarded(instruction.opcode, tracker.target(operands[0]), *moved[1:])
    return True


def _convert(tracker: Tracker, instruction: Instruction) -> bool:
    """`cvt` between integers moves bits; to a pair of narrow floats, it keeps the two apart."""
    modifiers = instruction.opcode[1:]
    if len(modifiers) == 2 and _INTEGERS.issuperset(modifiers):
        return _move(tracker, instruction)
    if modifiers[-2] in ("f16x2", "bf16x2") and len(instruction.operands) == 3:
        target, upper, lower = instruction.operands
        flags = [tracker.flag([tracker.shadow(source)]) for source in (lower, upper)]
        _join(tracker, target, flags)
        return True
    return False


def _select(tracker: Tracker, instruction: Instruction) -> bool:
    """`selp` and `slct` take the shadow of the chosen side; an undefined choice spoils it."""
    target, left, right, choice = instruction.operands
    if not isinstance(target, Register):
        return False
    type_ = tracker.bit_type(target.name)
    result: Operand = tracker.temporary(type_)
    sides = tracker.shadow(left), tracker.shadow(right)
    tracker.emit(".".join(instruction.opcode), result, *sides, choice)
    flag = tracker.flag([tracker.shadow(choice)])
    if flag is not None:
        chosen, result = result, tracker.temporary(type_)
        tracker.emit(f"selp.{type_}", result, UNDEFINED, chosen, flag)
    tracker.guarded(("mov", type_), tracker.target(target), result)
    return True


def _mask(tracker: Tracker, instruction: Instruction) -> bool:
    """`and`, `or`: a defined 0, or 1, decides a bit whatever the other side is."""
    name, type_ = instruction.opcode[0], instruction.opcode[-1]
    target, *sources = instruction.operands
    total: Operand = tracker.temporary(type_)
    shadows = [tracker.shadow(source) for source in sources]
    tracker.emit(f"or.{type_}", total, *shadows)
    for source, shadow in zip(sources, shadows, strict=True):
        deciding: Operand = source
        if name == "or":
            deciding = tracker.temporary(type_)
            tracker.emit(f"not.{type_}", deciding, source)
        open_ = tracker.temporary(type_)
        tracker.emit(f"or.{type_}", open_, shadow, deciding)
        both = tracker.temporary(type_)
        tracker.emit(f"and.{type_}", both, total, open_)
        total = both
    tracker.guarded(("mov", type_), tracker.target(target), total)
    return True


def _unite(tracker: Tracker, instruction: Instruction) -> bool:
    """`xor`, `not`, `lop3`: every bit depends on the bits at its place."""
    type_ = instruction.opcode[-1]
    target, *sources = instruction.operands[:4]
    if not isinstance(target, Register):
        return False
    total: Operand = DEFINED
    for source in sources:
        both = tracker.temporary(type_)
        tracker.emit(f"or.{type_}", both, total, tracker.shadow(source))
        total = both
    tracker.guarded(("mov", type_), tracker.target(target), total)
    return True


def _shuffle(tracker: Tracker, instruction: Instruction) -> bool:
    """`shfl` moves the shadow; whether a lane lies inside depends on defined operands only."""
    target, source, *control = instruction.operands
    if any(tracker.is_tainted(operand) for operand in control):
        return False
    first = target
    if isinstance(target, Dual):
        first = target.first
        tracker.set_all(target.second.name, None)
    tracker.guarded(instruction.opcode, tracker.target(first), tracker.shadow(source), *control)
    return True


def _reduce(tracker: Tracker, instruction: Instruction) -> bool:
    """`redux`: one undefined lane among the members spoils the result."""
    target, source, members = instruction.operands
    total = tracker.temporary("b32")
    tracker.emit("redux.sync.or.b32", total, tracker.shadow(source), members)
    if isinstance(target, Register):
        tracker.set_all(target.name, tracker.flag([total]))
    return True


def _multiply_matrices(tracker: Tracker, instruction: Instruction) -> bool:
    """`mma`: a result is undefined where its row, its column or its addend is.

    A factor with ones where it is undefined, times ones, is not zero in those rows; likewise for
    columns.
    """
    target, left, right, addend = instruction.operands
    *_, left_type, right_type, _ = instruction.opcode
    if not {left_type, right_type} <= _ONES.keys():
        return False
    results = _items(target)
    totals = []
    for factor, type_, at in ((left, left_type, 0), (right, right_type, 1)):
        marked, any_tainted = _marked(tracker, factor, _ONES[type_])
        if any_tainted:
            other, other_type = ((right, right_type), (left, left_type))[at]
            ones = Vector((Immediate(_ONES[other_type]),) * len(_items(other)))
            total = Vector(tuple(_like(tracker, item) for item in results))
            pair = (marked, ones) if at == 0 else (ones, marked)
            zeros = Vector((DEFINED,) * len(_items(addend)))
            tracker.emit(".".join(instruction.opcode), total, *pair, zeros)
            totals.append(total.items)
    flags = [
        tracker.flag([tracker.shadow(own), *(total[k] for total in totals)])
        for k, own in enumerate(_items(addend))
    ]
    for item, flag in zip(results, flags, strict=True):
        if isinstance(item, Register):
            tracker.set_all(item.name, flag)
    return True


def _marked(tracker: Tracker, factor: Operand, ones: int) -> tuple[Vector, bool]:
    """A factor of ones where a register is undefined, and zeros; and whether there can be any."""
    marked: list[Operand] = []
    for item in _items(factor):
        flag = tracker.flag([tracker.shadow(item)])
        if flag is None or not isinstance(item, Register):
            marked.append(DEFINED)
            continue
        mark = _like(tracker, item)
        type_ = tracker.bit_type(item.name)
        tracker.emit(f"selp.{type_}", mark, Immediate(ones), DEFINED, flag)
        marked.append(mark)
    return Vector(tuple(marked)), any(item != DEFINED for item in marked)


def _like(tracker: Tracker, item: Operand) -> Register:
    name = item.name if isinstance(item, Register) else ""
    return tracker.temporary(tracker.bit_type(name))


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _moves(*control: int) -> Rule:
    return lambda tracker, instruction: _move(tracker, instruction, control)


_RULES: Mapping[str, Rule] = {
    "mov": _moves(),
    "shl": _moves(2),
    "shr": _moves(2),
    "shf": _moves(3),
    "prmt": _moves(3),
    "bfe": _moves(2, 3),
    "bfi": _moves(3, 4),
    "cvt": _convert,
    "selp": _select,
    "slct": _select,
    "and": _mask,
    "or": _mask,
    "xor": _unite,
    "not": _unite,
    "lop3": _unite,
    "shfl": _shuffle,
    "redux": _reduce,
    "mma": _multiply_matrices,
}
