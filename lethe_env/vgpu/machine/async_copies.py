"""`cp.async`: copies from global to shared memory that happen when a wait completes them.

A copy lies in its warp's queue from the instruction until a wait, and only then reads and writes.
That is as late as the GPU may do it, so a missing wait shows.
"""

from __future__ import annotations

import ctypes

from ..ptx.model import Address, Immediate, Instruction
from . import lanes, scattered, shadow
from .bulk_copies import lower_bulk
from .counts import count_access
from .emit import Module, Writer
from .host_access import LINE_BYTES, prefetch
from .layout import Context, Copy, Fiber, Site
from .lowering import Lowering, take_operands
from .memory_ops import access_arguments, address_of
from .values import Value, constant, i32, is_vector, vector
from .windows import Access, each_window, host_addresses

QUEUE = 256
"""Copies a warp can have in flight; the oldest completes early beyond that, as a GPU may."""

_HINTS = frozenset(("L2::64B", "L2::128B", "L2::256B", "L2::cache_hint"))
_COPY = f"[{ctypes.sizeof(Copy)} x i8]"


def lower_async(lowering: Lowering, instruction: Instruction) -> None:
    """Write `cp.async` and its groups."""
    writer, fiber = lowering.writer, lowering.fiber
    if "bulk" in instruction.opcode:
        lower_bulk(lowering, instruction)
        return
    match instruction.opcode:
        case ("cp", "async", "commit_group"):
            group = writer.read(fiber, Fiber, "group")
            writer.write(fiber, Fiber, "group", writer.add(group, 1))
        case ("cp", "async", "wait_all"):
            _wait(lowering, i32(-1))
        case ("cp", "async", "wait_group") if isinstance(instruction.operands[0], Immediate):
            group = writer.read(fiber, Fiber, "group")
            pending = i32(instruction.operands[0].value)
            enough = writer.compare("uge", group, pending)
            done = writer.select(enough, writer.sub(group, pending), i32(0))
            _wait(lowering, done)
        case ("cp", "async", "ca" | "cg", "shared" | "shared::cta", "global", *hints) if (
            set(hints) <= _HINTS
        ):
            _lower_copy(lowering, instruction)
        case _:
            raise lowering.unsupported(instruction)


def _wait(lowering: Lowering, before: Value) -> None:
    """Complete all copies of groups below `before`."""
    name = _completer(lowering.module)
    lowering.writer.call("void", name, lowering.context, lowering.fiber, before)


def _lower_copy(lowering: Lowering, instruction: Instruction) -> None:
    target, source, size, *rest = take_operands(instruction, 3, more=True)
    if "L2::cache_hint" in instruction.opcode:
        rest = rest[:-1]
    if not isinstance(target, Address) or not isinstance(source, Address):
        raise lowering.unsupported(instruction, "its operands")
    if not isinstance(size, Immediate) or size.value not in (4, 8, 16) or len(rest) > 1:
        raise lowering.unsupported(instruction, "its size")
    registers, writer = lowering.registers, lowering.writer
    mask = registers.active(instruction)
    given = i32(size.value) if not rest else registers.read(rest[0], "i32", lanes=True)
    if not is_vector(given.type):
        given = writer.splat(given)
    places = writer.resize(address_of(lowering, target, "i32"), "i64")
    arguments = access_arguments(lowering, instruction, "global", source, mask)
    name = _issuer(lowering.module, size.value)
    writer.call("void", name, *arguments, lowering.fiber, places, given)


def _issuer(module: Module, size_bytes: int) -> str:
    """`issue(access…, fiber, targets, given)`: check the source, and queue the copy.

    `given` is the number of bytes that a lane copies; the rest of its target becomes zero.
    """

    def build(writer: Writer, *parameters: Value) -> None:
        access, (fiber, targets, given) = Access(*parameters[:5]), parameters[5:]
        copy = _push(writer, access.context, fiber)
        reads = writer.both(access.mask, writer.compare("ne", given, 0))
        fetched = _resolve_sources(writer, access.narrowed(reads), copy, size_bytes)
        window = writer.field(access.context, Context, "shared_window")
        shared = Access(targets, access.mask, window, access.site, access.context)
        active = _reserve_targets(writer, shared, size_bytes)
        writer.store(writer.resize(targets, "i32"), writer.field(copy, Copy, "target"), 4)
        writer.store(given, writer.field(copy, Copy, "given"), 4)
        writer.write(copy, Copy, "lanes", active)
        writer.write(copy, Copy, "fetched", fetched)
        poisoned = writer.both(writer.bits(reads), writer.invert(fetched))
        writer.write(copy, Copy, "poisoned", poisoned)
        writer.write(copy, Copy, "size", size_bytes)
        writer.write(copy, Copy, "group", writer.read(fiber, Fiber, "group"))
        writer.write(copy, Copy, "site", access.site)
        writer.give()

    parameters = [*Access.parameters(), ("ptr", "fiber"), (vector("i64"), "targets")]
    parameters.append((vector("i32"), "given"))
    return module.function(f"copy.issue.{size_bytes}", "void", parameters, build)


def _resolve_sources(writer: Writer, access: Access, copy: Value, size_bytes: int) -> Value:
    """Leave host addresses in the copy; gives the lanes whose source may be read, `i32`."""
    addresses = writer.variable(constant(vector("i64"), 0))
    fetched = writer.variable(i32(0))
    with each_window(writer, access, size_bytes) as here:
        shadow.before_load(writer, here, 32, size_bytes // 4)
        known = writer.load(vector("i64"), addresses)
        places = host_addresses(writer, here)
        writer.store(writer.select(here.mask, places, known), addresses)
        _prefetch(writer, places, size_bytes)
        readable = writer.bits(here.mask)
        writer.store(writer.either(writer.load("i32", fetched), readable), fetched)
    writer.store(writer.load(vector("i64"), addresses), writer.field(copy, Copy, "source"), 8)
    count_access(writer, access, size_bytes, stores=False)
    return writer.load("i32", fetched)


def _prefetch(writer: Writer, places: Value, size_bytes: int) -> None:
    """Ask for sources that lie in rows at least as long as a line of the cache."""
    for place in lanes.each(writer, writer.variable(places))[:: LINE_BYTES // size_bytes]:
        prefetch(writer, place, LINE_BYTES)


def _reserve_targets(writer: Writer, access: Access, size_bytes: int) -> Value:
    """Nobody may touch the targets until the copy completes; gives the lanes in bounds, `i32`."""
    kept = writer.variable(i32(0))
    with each_window(writer, access, size_bytes) as here:
        _claim(writer, here, size_bytes, complete=False)
        inside = writer.bits(here.mask)
        writer.store(writer.either(writer.load("i32", kept), inside), kept)
    count_access(writer, access, size_bytes, stores=True)
    return writer.load("i32", kept)


def _claim(writer: Writer, access: Access, size_bytes: int, complete: bool) -> None:
    """Check and note that the targets of a copy are written, now or when it completes."""
    fine = scattered.may_touch(writer, access, size_bytes, shadow.Touch.WRITE)
    with writer.when(fine):
        scattered.define_lanes(writer, access, size_bytes, defined=complete)
    with writer.when(writer.invert(fine)):
        note = shadow.complete_copy if complete else shadow.issue_copy
        note(writer, access, size_bytes // 4)


def _push(writer: Writer, context: Value, fiber: Value) -> Value:
    """A free place at the end of the warp's queue."""
    count = writer.read(fiber, Fiber, "copies_count")
    with writer.when(writer.compare("uge", count, QUEUE)):
        writer.call("void", _finisher(writer.module), context, fiber)
    first = writer.read(fiber, Fiber, "copies_first")
    count = writer.read(fiber, Fiber, "copies_count")
    writer.write(fiber, Fiber, "copies_count", writer.add(count, 1))
    return _copy_at(writer, fiber, writer.add(first, count))


def _copy_at(writer: Writer, fiber: Value, position: Value) -> Value:
    index = writer.both(writer.resize(position, "i64"), QUEUE - 1)
    return writer.item(writer.read(fiber, Fiber, "copies"), _COPY, index)


def _completer(module: Module) -> str:
    """`complete(context, fiber, before)`: finish copies until one is of group `before` or later."""

    def build(writer: Writer, context: Value, fiber: Value, before: Value) -> None:
        head, check, inside, after = (writer.name(x) for x in ("head", "check", "inside", "after"))
        writer.jump(head)
        writer.label(head)
        count = writer.read(fiber, Fiber, "copies_count")
        writer.branch(writer.compare("ne", count, 0), check, after)
        writer.label(check)
        copy = _copy_at(writer, fiber, writer.read(fiber, Fiber, "copies_first"))
        due = writer.compare("ult", writer.read(copy, Copy, "group"), before)
        writer.branch(due, inside, after)
        writer.label(inside)
        writer.call("void", _finisher(module), context, fiber)
        writer.jump(head)
        writer.label(after)
        writer.give()

    parameters = [("ptr", "context"), ("ptr", "fiber"), ("i32", "before")]
    return module.function("copy.complete", "void", parameters, build)


def _finisher(module: Module) -> str:
    """`finish(context, fiber)`: make the oldest copy happen."""

    def build(writer: Writer, context: Value, fiber: Value) -> None:
        first = writer.read(fiber, Fiber, "copies_first")
        copy = _copy_at(writer, fiber, first)
        writer.write(fiber, Fiber, "copies_first", writer.add(first, 1))
        count = writer.read(fiber, Fiber, "copies_count")
        writer.write(fiber, Fiber, "copies_count", writer.sub(count, 1))
        size = writer.read(copy, Copy, "size")
        active = writer.read(copy, Copy, "lanes")
        for size_bytes in (4, 8, 16):
            with writer.when(writer.compare("eq", size, size_bytes)):
                _move(writer, context, copy, active, size_bytes)
        writer.give()

    parameters = [("ptr", "context"), ("ptr", "fiber")]
    return module.function("copy.finish", "void", parameters, build)


def _move(writer: Writer, context: Value, copy: Value, active: Value, size_bytes: int) -> None:
    window = writer.field(context, Context, "shared_window")
    targets = writer.load(vector("i32"), writer.field(copy, Copy, "target"), 4)
    access = Access(
        writer.resize(targets, "i64"),
        writer.mask(active),
        window,
        writer.read(copy, Copy, "site"),
        context,
    )
    given = writer.load(vector("i32"), writer.field(copy, Copy, "given"), 4)
    cut = writer.any(writer.compare("ne", given, size_bytes))
    fetched = writer.both(active, writer.read(copy, Copy, "fetched"))
    whole = writer.both(writer.compare("eq", fetched, -1), writer.invert(cut))
    with writer.when(whole):
        sources = writer.field(copy, Copy, "source")
        lanes.move(writer, sources, writer.variable(host_addresses(writer, access)), size_bytes)
    with writer.when(writer.invert(whole)):
        _move_by_lane(writer, copy, access, size_bytes)
    _claim(writer, access, size_bytes, complete=True)


def _move_by_lane(writer: Writer, copy: Value, access: Access, size_bytes: int) -> None:
    """Lanes may be off, have no source, or copy a part of the size only."""
    base = writer.read(access.window, Site, "base")
    start = writer.sub(writer.read(access.window, Site, "host"), base)
    shared = writer.cast("inttoptr", start, "ptr")
    fetched = writer.read(copy, Copy, "fetched")
    poisoned = writer.read(copy, Copy, "poisoned")
    type_ = f"i{8 * size_bytes}"
    with writer.lanes(writer.bits(access.mask)) as lane:
        word = writer.item(writer.field(copy, Copy, "target"), "i32", lane)
        place = writer.at(shared, writer.resize(writer.load("i32", word), "i64"))
        narrow = writer.resize(lane, "i32")
        bad = writer.both(writer.shift_right(poisoned, narrow), 1)
        filler = writer.select(
            writer.compare("ne", bad, 0), constant(type_, -1), constant(type_, 0)
        )
        writer.store(filler, place, 1)
        good = writer.both(writer.shift_right(fetched, narrow), 1)
        with writer.when(writer.compare("ne", good, 0)):
            source = writer.load(
                "i64", writer.item(writer.field(copy, Copy, "source"), "i64", lane)
            )
            value = writer.load(type_, writer.cast("inttoptr", source, "ptr"), 1)
            kept = writer.load("i32", writer.item(writer.field(copy, Copy, "given"), "i32", lane))
            writer.store(_first_bytes(writer, value, kept, size_bytes), place, 1)


def _first_bytes(writer: Writer, value: Value, kept: Value, size_bytes: int) -> Value:
    """The first `kept` bytes of a value, zeros after them."""
    lost = writer.sub(i32(size_bytes), kept)
    some = writer.compare("ult", writer.sub(lost, 1), size_bytes - 1)
    bits = writer.resize(writer.select(some, writer.shift_left(lost, 3), i32(0)), value.type)
    return writer.both(value, writer.binary("lshr", constant(value.type, -1), bits))
