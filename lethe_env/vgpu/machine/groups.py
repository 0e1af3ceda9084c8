"""Groups of work that a warp closes and waits for by their number: copies, and products."""

from __future__ import annotations

from collections.abc import Collection

from ..ptx.model import Immediate, Instruction
from .dispatch import do_one
from .emit import Module, Writer
from .layout import Fiber
from .lowering import Lowering, take_operands
from .units import Kind, Operation, Units, operation_at, units_of
from .values import Value, constant, declared, i32

_KINDS = {"bulk_group": (Kind.STORE, Kind.REDUCE), "product_group": (Kind.FACTORS,)}
"""What belongs to the groups that a field of `Fiber` counts."""


def close_group(lowering: Lowering, instruction: Instruction, counter: str) -> None:
    """Write what closes a group."""
    writer, fiber = lowering.writer, lowering.fiber
    with writer.when(writer.any(lowering.registers.active(instruction))):
        group = writer.read(fiber, Fiber, counter)
        writer.write(fiber, Fiber, counter, writer.add(group, 1))


def wait_for_groups(lowering: Lowering, instruction: Instruction, counter: str) -> None:
    """Write what waits until at most so many groups are under way."""
    (pending,) = take_operands(instruction, 1)
    if not isinstance(pending, Immediate):
        raise lowering.unsupported(instruction)
    writer = lowering.writer
    with writer.when(writer.any(lowering.registers.active(instruction))):
        name = _waiter(lowering.module, counter)
        writer.call("void", name, lowering.context, lowering.fiber, i32(pending.value))


def _waiter(module: Module, counter: str) -> str:
    """`wait(context, fiber, pending)`: do what belongs to older groups."""

    def build(writer: Writer, context: Value, fiber: Value, pending: Value) -> None:
        units = units_of(writer, context)
        head, inside, after = (writer.name(stem) for stem in ("head", "inside", "after"))
        writer.jump(head)
        writer.label(head)
        due = writer.variable(i32(-1))
        first = writer.read(units, Units, "first")
        with writer.repeat(writer.read(units, Units, "count")) as position:
            own = operation_at(writer, units, writer.add(first, position))
            newer = writer.add(writer.read(own, Operation, "group"), pending)
            old = writer.compare("ult", newer, writer.read(fiber, Fiber, counter))
            late = writer.both(old, _belongs(writer, own, fiber, _KINDS[counter]))
            fresh = writer.compare("eq", writer.load("i32", due), i32(-1))
            with writer.when(writer.both(late, fresh)):
                writer.store(position, due)
        found = writer.load("i32", due)
        writer.branch(writer.compare("ne", found, i32(-1)), inside, after)
        writer.label(inside)
        do_one(writer, context, found)
        writer.jump(head)
        writer.label(after)
        writer.give()

    parameters = declared("ptr context, ptr fiber, i32 pending")
    return module.function(f"group.wait.{counter}", "void", parameters, build)


def _belongs(writer: Writer, operation: Value, fiber: Value, kinds: Collection[Kind]) -> Value:
    """Whether a warp has handed over an operation of one of some kinds."""
    owner = writer.cast("ptrtoint", writer.read(operation, Operation, "fiber"), "i64")
    mine = writer.compare("eq", owner, writer.cast("ptrtoint", fiber, "i64"))
    kind = writer.read(operation, Operation, "kind")
    counted = constant("i1", 0)
    for number in kinds:
        counted = writer.either(counted, writer.compare("eq", kind, int(number)))
    return writer.both(mine, counted)


def write_all(module: Module) -> None:
    """Write what kernels call."""
    for counter in _KINDS:
        _waiter(module, counter)
