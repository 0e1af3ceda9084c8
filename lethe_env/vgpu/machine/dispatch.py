"""The queue of what warps have handed over to units, and how it is worked off.

When no warp can go on, what happens next is a copy that one of them waits for, or if it waits for
an arrival of the tensor cores, their oldest work. All else stays where it is, as copies and tensor
cores do not wait for each other. If nobody waits for what is in the queue, its oldest work happens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

from .cluster_memory import each_home
from .emit import Module, Writer
from .layout import EARLY, Context, Fiber, Site
from .phase_state import is_held
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
from .values import Value, constant, i32, i64, vector

ADVANCE, BEGIN, END, SUBMIT = "unit.advance", "unit.begin", "unit.end", "unit.submit"
DO = "unit.do"
_OPERATION_BYTES = ctypes.sizeof(Operation)
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
            do_one(writer, context, i32(0))
        first, count = (writer.read(units, Units, name) for name in ("first", "count"))
        writer.write(units, Units, "count", writer.add(count, 1))
        writer.give(operation_at(writer, units, writer.add(first, count)))

    return module.function("unit.push", "ptr", _PARAMETERS, build)


def _drain(writer: Writer, context: Value) -> None:
    """Let everything in the queue happen."""
    head, after = writer.name("head"), writer.name("after")
    writer.jump(head)
    writer.label(head)
    more = writer.compare("ne", writer.read(units_of(writer, context), Units, "count"), 0)
    inside = writer.name("inside")
    writer.branch(more, inside, after)
    writer.label(inside)
    do_one(writer, context, i32(0))
    writer.jump(head)
    writer.label(after)


def _report_under_way(writer: Writer, context: Value) -> None:
    """Report what a block has handed over and not waited for; arrivals do no harm."""
    units = units_of(writer, context)
    first = writer.read(units, Units, "first")
    with writer.repeat(writer.read(units, Units, "count")) as position:
        own = operation_at(writer, units, writer.add(first, position))
        kind = writer.read(own, Operation, "kind")
        harmless = writer.compare("eq", kind, int(Kind.ARRIVE))
        # Of products in registers, the text itself tells what is not waited for; what lanes have
        # put on its way to another block is no more theirs.
        for other in (Kind.FACTORS, Kind.PUT):
            harmless = writer.either(harmless, writer.compare("eq", kind, int(other)))
        with writer.when(writer.invert(harmless)):
            target = writer.read(own, Operation, "target")
            site = writer.read(own, Operation, "site")
            misused(writer, context, target, Misuse.NOT_AWAITED, site)


def submit(writer: Writer, context: Value) -> None:
    """What was handed over is complete: where units are early, it happens now."""
    writer.module.refer(SUBMIT)
    writer.call("i32", SUBMIT, context)


def do_one(writer: Writer, context: Value, position: Value) -> None:
    """Do what is at a position of the queue, `i32` from its oldest operation on."""
    writer.module.refer(DO)
    writer.call("void", DO, context, position)


def _take(writer: Writer, units: Value, position: Value) -> Value:
    """Take an operation out of the queue, and close the gap that it leaves."""
    own = writer.slot(f"[{_OPERATION_BYTES} x i8]", 8)
    first, count = (writer.read(units, Units, name) for name in ("first", "count"))
    place = writer.add(first, position)
    _copy(writer, own, operation_at(writer, units, place))
    with writer.repeat(position) as step:
        gap = writer.sub(place, step)
        older = operation_at(writer, units, writer.sub(gap, 1))
        _copy(writer, operation_at(writer, units, gap), older)
    writer.write(units, Units, "first", writer.add(first, 1))
    writer.write(units, Units, "count", writer.sub(count, 1))
    return own


def _copy(writer: Writer, target: Value, source: Value) -> None:
    size = i64(_OPERATION_BYTES)
    writer.call("void", "llvm.memcpy.p0.p0.i64", target, source, size, constant("i1", 0))


def _wanted(writer: Writer, context: Value, units: Value) -> Value:
    """Position of what has to happen next, or -1 if nobody waits for anything."""
    first = writer.read(units, Units, "first")
    none = i32(-1)
    found, oldest_of_tensor_cores = writer.variable(none), writer.variable(none)
    with writer.repeat(writer.read(units, Units, "count")) as position:
        own = operation_at(writer, units, writer.add(first, position))
        kind = writer.read(own, Operation, "kind")
        product, arrival, *copies = (
            writer.compare("eq", kind, int(one))
            for one in (Kind.PRODUCT, Kind.ARRIVE, Kind.LOAD, Kind.CANCEL, Kind.PUT)
        )
        load = writer.either(writer.either(copies[0], copies[1]), copies[2])
        with writer.when(writer.either(product, arrival)):
            _note(writer, oldest_of_tensor_cores, position)
        with writer.when(writer.either(arrival, load)):
            place = writer.select(load, position, writer.load("i32", oldest_of_tensor_cores))
            with writer.when(_is_awaited(writer, context, own)):
                _note(writer, found, place)
    return writer.load("i32", found)


def _note(writer: Writer, variable: Value, position: Value) -> None:
    """Keep a position unless there is one already."""
    with writer.when(writer.compare("eq", writer.load("i32", variable), i32(-1))):
        writer.store(position, variable)


def _is_awaited(writer: Writer, context: Value, operation: Value) -> Value:
    """Whether a warp waits for a phase of a barrier that an operation tells."""
    offset = writer.resize(writer.read(operation, Operation, "barrier"), "i64")
    homes = writer.read(operation, Operation, "homes")
    found = writer.variable(constant("i1", 0))
    with each_home(writer, context, homes) as (_, home):
        window = writer.field(home, Context, "shared_window")
        barrier = writer.add(writer.read(window, Site, "host"), offset)
        fibers = writer.read(home, Context, "fibers")
        with writer.repeat(writer.read(home, Context, "warps")) as warp:
            size = f"[{ctypes.sizeof(Fiber)} x i8]"
            fiber = writer.item(fibers, size, writer.resize(warp, "i64"))
            phase = writer.cast("ptrtoint", writer.read(fiber, Fiber, "phase"), "i64")
            same = writer.both(writer.compare("eq", phase, barrier), is_held(writer, fiber))
            writer.store(writer.either(writer.load("i1", found), same), found)
    return writer.load("i1", found)


def _advance(writer: Writer, context: Value) -> None:
    """Do one thing in a cluster: what somebody waits for, or else the oldest of some block."""
    done = writer.variable(constant("i1", 0))
    for anything in (False, True):
        with each_home(writer, context, i32(-1)) as (_, home):
            units = units_of(writer, home)
            some = writer.compare("ne", writer.read(units, Units, "count"), 0)
            idle = writer.invert(writer.load("i1", done))
            with writer.when(writer.both(some, idle)):
                position = i32(0) if anything else _wanted(writer, home, units)
                with writer.when(writer.compare("ne", position, -1)):
                    do_one(writer, home, position)
                    writer.store(constant("i1", 1), done)
    writer.give(writer.resize(writer.load("i1", done), "i32"))


def write_queue(module: Module, works: Mapping[Kind, Work]) -> None:
    """Write the queue's functions.

    Args:
        module: Where to write them.
        works: What operations do.
    """

    def do(writer: Writer, context: Value, position: Value) -> None:
        operation = _take(writer, units_of(writer, context), position)
        current = writer.read(context, Context, "current")
        writer.write(context, Context, "current", writer.read(operation, Operation, "fiber"))
        own = writer.read(operation, Operation, "kind")
        for kind, work in works.items():
            with writer.when(writer.compare("eq", own, int(kind))):
                work(writer, context, operation)
        writer.write(context, Context, "current", current)
        writer.give()

    def begin(writer: Writer, context: Value) -> None:
        units = units_of(writer, context)
        for name in ("first", "count", "given_up", "promised"):
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

    module.function(DO, "void", [*_PARAMETERS, ("i32", "position")], do)
    for name, build in ((ADVANCE, _advance), (BEGIN, begin), (END, end), (SUBMIT, hurry)):
        module.function(name, "i32", _PARAMETERS, build)
    _pusher(module)
