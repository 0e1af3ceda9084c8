"""The queue of what warps have handed over to units, and how it is worked off."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .emit import Module, Writer
from .layout import EARLY, Context
from .tensor_allocation import report_kept
from .tensor_memory import misused
from .units import (
    QUEUE,
    TENSOR_COLUMNS,
    Kind,
    Misuse,
    Operation,
    Units,
    operation_at,
    units_of,
)
from .values import Value, constant, i32, vector

ADVANCE, BEGIN, END, SUBMIT = "unit.advance", "unit.begin", "unit.end", "unit.submit"
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


def _drain(writer: Writer, context: Value) -> None:
    """Let everything in the queue happen."""
    head, after = writer.name("head"), writer.name("after")
    writer.jump(head)
    writer.label(head)
    more = writer.call("i32", ADVANCE, context)
    writer.branch(writer.compare("ne", more, 0), head, after)
    writer.label(after)


def _report_under_way(writer: Writer, context: Value) -> None:
    """Report what a block has handed over and not waited for; arrivals do no harm."""
    units = units_of(writer, context)
    first = writer.read(units, Units, "first")
    with writer.repeat(writer.read(units, Units, "count")) as position:
        own = operation_at(writer, units, writer.add(first, position))
        kind = writer.read(own, Operation, "kind")
        harmless = writer.compare("eq", kind, int(Kind.ARRIVE))
        # Of products in registers, the text itself tells what is not waited for.
        harmless = writer.either(harmless, writer.compare("eq", kind, int(Kind.FACTORS)))
        with writer.when(writer.invert(harmless)):
            target = writer.read(own, Operation, "target")
            site = writer.read(own, Operation, "site")
            misused(writer, context, target, Misuse.NOT_AWAITED, site)


def submit(writer: Writer, context: Value) -> None:
    """What was handed over is complete: where units are early, it happens now."""
    writer.module.refer(SUBMIT)
    writer.call("i32", SUBMIT, context)


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
            _do_oldest(writer, context, units, works)
            writer.write(context, Context, "current", current)
        writer.give(writer.resize(some, "i32"))

    def begin(writer: Writer, context: Value) -> None:
        units = units_of(writer, context)
        for name in ("first", "count", "given_up"):
            writer.write(units, Units, name, 0)
        owners = writer.field(units, Units, "owners")
        writer.store(constant(vector("i8", TENSOR_COLUMNS), 0), owners, 1)
        writer.give(i32(0))

    def end(writer: Writer, context: Value) -> None:
        stopped = writer.compare("ne", writer.read(context, Context, "stop"), 0)
        with writer.when(writer.invert(stopped)):
            _report_under_way(writer, context)
            report_kept(writer, context)
        _drain(writer, context)
        writer.give(i32(0))

    def hurry(writer: Writer, context: Value) -> None:
        options = writer.read(context, Context, "options")
        with writer.when(writer.compare("ne", writer.both(options, EARLY), 0)):
            _drain(writer, context)
        writer.give(i32(0))

    for name, build in ((ADVANCE, advance), (BEGIN, begin), (END, end), (SUBMIT, hurry)):
        module.function(name, "i32", _PARAMETERS, build)
    _pusher(module)
