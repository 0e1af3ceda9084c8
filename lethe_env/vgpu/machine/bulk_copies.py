"""`cp.async.bulk`: copies of tiles that a unit makes, and the groups that are waited for."""

from __future__ import annotations

import re

from ..ptx.model import Address, Immediate, Instruction, Vector
from .dispatch import ADVANCE, operation_at, push
from .emit import Module, Writer
from .layout import Fiber
from .leading_lane import address_at, at_lane, one_lane
from .lowering import Lowering, take_operands
from .tile_copies import claimer
from .tile_reductions import OPERATIONS
from .units import Kind, Operation, Units, units_of
from .values import Value, constant, declared, i32

_HINTS = frozenset(("tile", "L2::cache_hint"))
_RANK = re.compile(r"([1-5])d")


def lower_bulk(lowering: Lowering, instruction: Instruction) -> None:
    """Write `cp.async.bulk`."""
    match instruction.opcode[1:]:
        case ("async", "bulk", "commit_group"):
            _lower_commit(lowering, instruction)
        case ("async", "bulk", "wait_group") | ("async", "bulk", "wait_group", "read"):
            _lower_wait(lowering, instruction)
        case ("async", "bulk", "tensor", rank, "shared::cta" | "shared::cluster", "global",
              *rest):  # fmt: skip
            _check(lowering, instruction, rank, rest, "mbarrier::complete_tx::bytes")
            _lower_load(lowering, instruction)
        case ("async", "bulk", "tensor", rank, "global", "shared::cta", *rest):
            _check(lowering, instruction, rank, rest, "bulk_group")
            _lower_store(lowering, instruction)
        case ("reduce", "async", "bulk", "tensor", rank, "global", "shared::cta", operation,
              *rest) if operation in OPERATIONS:  # fmt: skip
            _check(lowering, instruction, rank, rest, "bulk_group")
            _lower_store(lowering, instruction, OPERATIONS.index(operation))
        case _:
            raise lowering.unsupported(instruction)


def _check(
    lowering: Lowering, instruction: Instruction, rank: str, rest: list[str], mechanism: str
) -> None:
    others = [part for part in rest if part not in _HINTS]
    if others != [mechanism] or _RANK.fullmatch(rank) is None:
        raise lowering.unsupported(instruction)


def _lower_load(lowering: Lowering, instruction: Instruction) -> None:
    target, source, barrier, *_ = take_operands(instruction, 3, more=True)
    if not isinstance(target, Address) or not isinstance(barrier, Address):
        raise lowering.unsupported(instruction, "its operands")
    _hand_over(lowering, instruction, Kind.LOAD, source, target, barrier)


def _lower_store(
    lowering: Lowering, instruction: Instruction, reduction: int | None = None
) -> None:
    target, source, *_ = take_operands(instruction, 2, more=True)
    if not isinstance(source, Address):
        raise lowering.unsupported(instruction, "its operands")
    kind = Kind.STORE if reduction is None else Kind.REDUCE
    _hand_over(lowering, instruction, kind, target, source, None, reduction or 0)


def _hand_over(
    lowering: Lowering,
    instruction: Instruction,
    kind: Kind,
    tensor: object,
    place: Address,
    barrier: Address | None,
    reduction: int = 0,
) -> None:
    """Queue a copy of a tile."""
    rank = int(next(part for part in instruction.opcode if _RANK.fullmatch(part))[0])
    further = tensor.further if isinstance(tensor, Address) else ()
    coordinates = further[0] if len(further) == 1 else None
    if not isinstance(tensor, Address) or not isinstance(coordinates, Vector):
        raise lowering.unsupported(instruction, "its tensor")
    if len(coordinates.items) != rank:
        raise lowering.unsupported(instruction, f"{len(coordinates.items)} coordinates")
    writer = lowering.writer
    with one_lane(lowering, instruction) as lane:
        own = push(writer, lowering.context, lowering.fiber, kind, lowering.site(instruction))
        writer.write(own, Operation, "left", address_at(lowering, tensor, "i64", lane))
        writer.write(own, Operation, "target", address_at(lowering, place, "i32", lane))
        writer.write(own, Operation, "rank", rank)
        writer.write(own, Operation, "sources", reduction)
        group = writer.read(lowering.fiber, Fiber, "bulk_group")
        writer.write(own, Operation, "group", group)
        start = writer.field(own, Operation, "coordinates")
        for index, item in enumerate(coordinates.items):
            value = at_lane(lowering, item, "i32", lane)
            writer.store(value, writer.item(start, "i32", index), 4)
        if barrier is not None:
            value = address_at(lowering, barrier, "i32", lane)
            writer.write(own, Operation, "barrier", value)
        writer.call("void", claimer(lowering.module), lowering.context, own)


def _lower_commit(lowering: Lowering, instruction: Instruction) -> None:
    writer, fiber = lowering.writer, lowering.fiber
    with writer.when(writer.any(lowering.registers.active(instruction))):
        group = writer.read(fiber, Fiber, "bulk_group")
        writer.write(fiber, Fiber, "bulk_group", writer.add(group, 1))


def _lower_wait(lowering: Lowering, instruction: Instruction) -> None:
    (pending,) = take_operands(instruction, 1)
    if not isinstance(pending, Immediate):
        raise lowering.unsupported(instruction)
    writer = lowering.writer
    with writer.when(writer.any(lowering.registers.active(instruction))):
        name = waiter(lowering.module)
        writer.call("void", name, lowering.context, lowering.fiber, i32(pending.value))


def waiter(module: Module) -> str:
    """`wait(context, fiber, pending)`: until at most so many groups of a warp are under way."""

    def build(writer: Writer, context: Value, fiber: Value, pending: Value) -> None:
        units = units_of(writer, context)
        head, inside, after = (writer.name(stem) for stem in ("head", "inside", "after"))
        writer.jump(head)
        writer.label(head)
        due = writer.variable(constant("i1", 0))
        first = writer.read(units, Units, "first")
        with writer.repeat(writer.read(units, Units, "count")) as position:
            own = operation_at(writer, units, writer.add(first, position))
            late = _is_due(writer, own, fiber, pending)
            writer.store(writer.either(writer.load("i1", due), late), due)
        writer.branch(writer.load("i1", due), inside, after)
        writer.label(inside)
        writer.call("i32", ADVANCE, context)
        writer.jump(head)
        writer.label(after)
        writer.give()

    parameters = declared("ptr context, ptr fiber, i32 pending")
    return module.function("bulk.wait", "void", parameters, build)


def _is_due(writer: Writer, operation: Value, fiber: Value, pending: Value) -> Value:
    kind = writer.read(operation, Operation, "kind")
    grouped = writer.compare("uge", kind, int(Kind.STORE))
    owner = writer.cast("ptrtoint", writer.read(operation, Operation, "fiber"), "i64")
    mine = writer.compare("eq", owner, writer.cast("ptrtoint", fiber, "i64"))
    newer = writer.add(writer.read(operation, Operation, "group"), pending)
    old = writer.compare("ult", newer, writer.read(fiber, Fiber, "bulk_group"))
    return writer.both(writer.both(grouped, mine), old)
