"""Undefined values at accesses to memory: where they come from, and where using them begins."""

from __future__ import annotations

from ..ptx.dataflow import destinations
from ..ptx.model import Address, Instruction, Operand, Register, Vector
from .taint import is_shared
from .tracker import DEFINED, Tracker

_WORDS = {4: "b32", 8: "v2.b32", 16: "v4.b32"}
"""The words of an asynchronous copy."""


def access(tracker: Tracker, instruction: Instruction, followed: bool) -> None:
    """Write what an access does to shadows.

    Args:
        tracker: Where to write.
        instruction: The access.
        followed: Whether what it loads from global memory is to be followed.
    """
    _use_place(tracker, instruction)
    name = instruction.opcode[0]
    shared = is_shared(instruction) and tracker.taint.shared
    if name == "cp":
        if len(instruction.operands) > 1 and shared:
            _copy(tracker, instruction, followed)
    elif name in ("st", "stmatrix", "red"):
        _store(tracker, instruction, shared)
    elif followed:
        target, source = instruction.operands[:2]
        tracker.guarded(("undefined", *instruction.opcode[1:]), tracker.target(target), source)
    elif name == "atom":
        _operate(tracker, instruction, shared)
    elif shared and not destinations(instruction).isdisjoint(tracker.taint.registers):
        target, source = instruction.operands[:2]
        tracker.guarded(instruction.opcode, tracker.target(target), tracker.shadow(source))
    else:
        for register in sorted(destinations(instruction)):
            tracker.set_all(register, None)


def _use_place(tracker: Tracker, instruction: Instruction) -> None:
    """The guard and the addresses of an access are used."""
    if instruction.predicate is not None:
        tracker.use_register(instruction.predicate.name, guarded=False)
    for operand in instruction.operands:
        if isinstance(operand, Address) and isinstance(operand.base, Register):
            tracker.use_register(operand.base.name)


def _store(tracker: Tracker, instruction: Instruction, shared: bool) -> None:
    """What is stored to shared memory leaves its shadow there; elsewhere, it is used."""
    place, *values = instruction.operands
    if shared and instruction.opcode[0] != "red":
        shadows = (tracker.shadow(value) for value in values[:1])
        tracker.guarded(instruction.opcode, tracker.shadow(place), *shadows)
    else:
        _use_values(tracker, instruction, values)


def _operate(tracker: Tracker, instruction: Instruction, shared: bool) -> None:
    """An atomic operation uses what it is given; its result is what was in memory."""
    target, place, *values = instruction.operands
    _use_values(tracker, instruction, values)
    if shared and tracker.is_tainted(target):
        type_ = f"b{instruction.opcode[-1].lstrip('bsuf')}"
        tracker.guarded(("ld", "shared", type_), tracker.shadow(target), tracker.shadow(place))


def _use_values(tracker: Tracker, instruction: Instruction, values: list[Operand]) -> None:
    for value in values:
        for item in value.items if isinstance(value, Vector) else (value,):
            if isinstance(item, Register) and tracker.is_tainted(item):
                tracker.use(item, instruction.opcode[-1])


def _copy(tracker: Tracker, instruction: Instruction, followed: bool) -> None:
    """An asynchronous copy leaves the shadow of its source at once."""
    target, source, size, *given = instruction.operands
    if "L2::cache_hint" in instruction.opcode:
        given = given[:-1]
    size_bytes = getattr(size, "value", 0)
    words = tuple(tracker.temporary("b32") for _ in range(size_bytes // 4))
    items = Vector(words) if len(words) > 1 else words[0]
    for word in words:
        tracker.emit("mov.b32", word, DEFINED)
    if followed:
        opcode = f"undefined.global.{_WORDS[size_bytes]}"
        tracker.guarded(opcode.split("."), items, source)
    for length in given:
        tracker.use(length, "b32")
        some = tracker.temporary("pred")
        tracker.emit("setp.ne.u32", some, length, DEFINED)
        for word in words:
            tracker.emit("selp.b32", word, word, DEFINED, some)
    stored = f"st.shared.{_WORDS[size_bytes]}"
    tracker.guarded(stored.split("."), tracker.shadow(target), items)
