"""The queue of what warps have handed over to units, and how it is worked off."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

from .emit import Module, Writer
from .layout import Context
from .units import (
    QUEUE,
    TENSOR_COLUMNS,
    Kind,
    Operation,
    Units,
    units_of,
)
from .values import Value, constant, i32, vector

ADVANCE, BEGIN, END = "unit.advance", "unit.begin", "unit.end"
_OPERATION = f"[{ctypes.sizeof(Operation)} x i8]"
_PARAMETERS = [("ptr", "context")]

Work = Callable[[Writer, Value, Value], None]
"""Writes what an operation does, from the context and the `Operation`."""


def push(writer: Writer, context: Value, fiber: Value, kind: Kind, site: Value) -> Value:
    """A new operation at the end of the queue, whose other fields are to be set."""
    own = writer.call("ptr", _pusher(writer.module), context)
    writer.write(own, Operation, "fiber", fiber)
    writer.write(own, Operation, "kind", int(kind))
    writer.write(own, Operation, "site", site)
    return own


def _pusher(module: Module) -> str:
    """`ptr push(context)`: where the queue is full, its oldest operation happens first."""

    def build(writer: Writer, context: Value) -> None:
        units = units_of(writer, context)
        full = writer.compare("uge", writer.read(units, Units, "count"), QUEUE)
        with writer.when(full):
            writer.call("i32", ADVANCE, context)
        first, count = (writer.read(units, Units, name) for name in ("first", "count"))
        writer.write(units, Units, "count", writer.add(count, 1))
        writer.give(operation_at(writer, units, writer.add(first, count)))

    return module.function("unit.push", "ptr", _PARAMETERS, build)


def _do_oldest(writer: Writer, context: Value, units: Value, works: Mapping[Kind, Work]) -> None:
    first, count = (writer.read(units, Units, name) for name in ("first", "count"))
    writer.write(units, Units, "first", writer.add(first, 1))
    writer.write(units, Units, "count", writer.sub(count, 1))
    operation = operation_at(writer, units, first)
    writer.write(context, Context, "current", writer.read(operation, Operation, "fiber"))
    own = writer.read(operation, Operation, "kind")
    for kind, work in works.items():
        with writer.when(writer.compare("eq", own, int(kind))):
            work(writer, context, operation)


def _is_arrival_next(writer: Writer, units: Value) -> Value:
    """An arrival happens as soon as what it stands for is done: at once after it."""
    first, count = (writer.read(units, Units, name) for name in ("first", "count"))
    kind = writer.read(operation_at(writer, units, first), Operation, "kind")
    arrives = writer.compare("eq", kind, int(Kind.ARRIVE))
    return writer.both(arrives, writer.compare("ne", count, 0))


def operation_at(writer: Writer, units: Value, position: Value) -> Value:
    """The operation at a position of the queue, which goes round."""
    index = writer.both(writer.resize(position, "i64"), QUEUE - 1)
    return writer.item(writer.field(units, Units, "queue"), _OPERATION, index)


def write_queue(module: Module, works: Mapping[Kind, Work]) -> None:
    """Write the queue's functions.

    Args:
        module: Where to write them.
        works: What operations do.
    """

    def advance(writer: Writer, context: Value) -> None:
        units = units_of(writer, context)
        some = writer.compare("ne", writer.read(units, Units, "count"), 0)
        current = writer.read(context, Context, "current")
        with writer.when(some):
            again, over = writer.name("again"), writer.name("over")
            writer.jump(again)
            writer.label(again)
            _do_oldest(writer, context, units, works)
            writer.branch(_is_arrival_next(writer, units), again, over)
            writer.label(over)
            writer.write(context, Context, "current", current)
        writer.give(writer.resize(some, "i32"))

    def begin(writer: Writer, context: Value) -> None:
        units = units_of(writer, context)
        for name in ("first", "count", "allocated", "relinquished"):
            writer.write(units, Units, name, 0)
        owners = writer.field(units, Units, "owners")
        writer.store(constant(vector("i8", TENSOR_COLUMNS), 0), owners, 1)
        writer.give(i32(0))

    def end(writer: Writer, context: Value) -> None:
        head, after = writer.name("head"), writer.name("after")
        writer.jump(head)
        writer.label(head)
        more = writer.call("i32", ADVANCE, context)
        writer.branch(writer.compare("ne", more, 0), head, after)
        writer.label(after)
        writer.give(i32(0))

    for name, build in ((ADVANCE, advance), (BEGIN, begin), (END, end)):
        module.function(name, "i32", _PARAMETERS, build)
    _pusher(module)
