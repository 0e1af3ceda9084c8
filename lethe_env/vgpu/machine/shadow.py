"""The order of accesses: what nothing orders is a race, or a missing barrier.

Order is kept in cells, one for as many bytes as the kernel's narrowest access moves. A cell holds
who wrote last and who read last. In global memory that is a block; two blocks conflict wherever
they run. In shared memory it is a warp and the epoch, the number of barriers passed so far; two
warps conflict within one epoch. Atomic operations do not conflict with each other, and a store of
the value that is there already conflicts with nothing: data that several warps hold are stored by
all of them.

Blocks that hand data on by acquire and release are not reported: once a block has acquired what
another has written atomically, it is ordered behind every block that has released.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from . import definedness
from .emit import Module, Writer
from .host_access import reader, result_types, writer_of
from .layout import Context, Fiber, Site
from .sectors import (
    CELL_BYTES,
    LOW_MARK,
    Marks,
    joined,
    spread_lanes,
    touch_shared_span,
    touch_span,
)
from .spans import Span, is_shared
from .values import LANES, Value, constant, constants, i32, i64, struct_type, vector
from .windows import BARRIER, RACE, Access, host_addresses, report

WARP_BITS = 6
UNIT_WARP = 62
"""Stands in marks for what a unit has written, in place of a warp's number plus one."""
_SEVERAL_WARPS = (1 << WARP_BITS) - 1
ATOMIC = 0x80000000
"""In the writer of a cell: it was an atomic operation."""
_WORDS = vector("i32")
NO_LANES = constant(vector("i1"), 0)


class Touch(IntEnum):
    """How an access touches a cell."""

    READ = 0
    WRITE = 1
    ATOMIC = 2
    ATOMIC_READ = 3
    """A load that is itself ordered: volatile, relaxed, or acquire; it counts as acquiring."""
    ACQUIRING = 4
    """An atomic operation that acquires."""


def before_load(
    writer: Writer, access: Access, width: int, count: int, touch: Touch = Touch.READ
) -> None:
    """Check a load within one window."""
    definedness.check(writer, access, width, count)
    _touch(writer, access, width * count // 8, touch)


def before_store(
    writer: Writer, access: Access, width: int, values: Sequence[Value], ordered: bool = False
) -> None:
    """Note and check a store within one window; `ordered` ones are like atomic operations."""
    size_bytes = width * len(values) // 8
    definedness.mark(writer, access, width, len(values), defined=True)
    if ordered:
        _touch(writer, access, size_bytes, Touch.ATOMIC)
        release(writer, access)
        return
    with writer.when(writer.compare("ne", writer.read(access.window, Site, "shadow"), 0)):
        types = result_types(width, len(values))
        read = reader(writer.module, width, len(values))
        places = host_addresses(writer, access)
        found = writer.call(struct_type(types), read, places, access.mask, *values)
        same = constant(vector("i1"), 1)
        for old, new in zip(writer.unpack(found, types), values, strict=True):
            same = writer.both(same, writer.compare("eq", old, new))
        _touch(writer, access, size_bytes, Touch.WRITE, same)


def complete_copy(writer: Writer, access: Access, count: int) -> None:
    """Note and check the arrival of a copy of `count` words in shared memory."""
    definedness.mark(writer, access, 32, count, defined=True)
    _touch(writer, access, 4 * count, Touch.WRITE)


def issue_copy(writer: Writer, access: Access, count: int) -> None:
    """Note that a copy of `count` words to shared memory is on its way: nobody may touch them."""
    definedness.mark(writer, access, 32, count, defined=False)
    _touch(writer, access, 4 * count, Touch.WRITE)


def before_atomic(
    writer: Writer, access: Access, width: int, acquires: bool, releases: bool
) -> None:
    """Check an atomic operation within one window."""
    before_load(writer, access, width, 1, Touch.ACQUIRING if acquires else Touch.ATOMIC)
    if releases:
        release(writer, access)


def release(writer: Writer, access: Access) -> None:
    """Note that this block has released what it wrote so far."""
    with writer.when(writer.compare("ne", writer.read(access.window, Site, "shadow"), 0)):
        released = writer.read(access.context, Context, "released")
        block = writer.resize(writer.read(access.context, Context, "block"), "i64")
        writer.store(i32(1), writer.item(released, "i32", writer.add(block, 1)))


def after_atomic(writer: Writer, access: Access, width: int) -> None:
    """Note what an atomic operation wrote."""
    definedness.mark(writer, access, width, 1, defined=True)


def touch_piece(writer: Writer, access: Access, span: Span, touch: Touch) -> Value:
    """Check and mark a plain access that is a span; whether all is well, `i1`.

    If not, it must be looked at again, lane by lane.
    """
    well = writer.variable(constant("i1", 1))
    with writer.when(writer.compare("ne", writer.read(access.window, Site, "shadow"), 0)):
        shared = is_shared(writer, access)
        marks = _marks(writer, access.context, shared)
        bits = _granule_bits(writer, access.context, shared)
        with writer.when(shared):
            done = touch_shared_span(writer, access, span, int(touch), marks, bits)
            writer.store(done, well)
        with writer.when(writer.invert(shared)):
            place = span.offset, span.length
            done = touch_span(writer, access, *place, int(touch), marks, bits)
            writer.store(done, well)
    return writer.load("i1", well)


def _touch(
    writer: Writer, access: Access, size_bytes: int, touch: Touch, quiet: Value = NO_LANES
) -> None:
    """Go through the cells of an access; lanes in `quiet` leave their mark but have no conflict."""
    with writer.when(writer.compare("ne", writer.read(access.window, Site, "shadow"), 0)):
        name = _toucher(writer.module)
        shared = is_shared(writer, access)
        arguments = [*access.values(), i32(touch), i64(size_bytes), shared, quiet]
        writer.call("void", name, *arguments)


def _toucher(module: Module) -> str:
    """`touch(access…, how, size, shared, quiet)`: see `_touch`."""

    def build(writer: Writer, *parameters: Value) -> None:
        access, (how, size, shared, quiet) = Access(*parameters[:5]), parameters[5:]
        with writer.when(writer.invert(shared)):
            spread_lanes(writer, access, size)
        marks = _marks(writer, access.context, shared)
        bits = _granule_bits(writer, access.context, shared)
        cells = writer.binary("lshr", size, bits)
        first, step, tight = _cell_places(writer, access, quiet, bits, cells)
        plain = writer.compare("ule", how, int(Touch.WRITE))
        trouble = writer.variable(constant("i1", 1))
        with writer.when(writer.both(tight, plain)):
            writer.store(_sweep(writer, writer.extract(first, 0), cells, how, marks), trouble)
        with writer.when(writer.load("i1", trouble)):
            _inspect(writer, access, first, step, cells, how, shared, quiet, marks)
        writer.give()

    parameters = [*Access.parameters(), ("i32", "how"), ("i64", "size"), ("i1", "shared")]
    parameters.append((vector("i1"), "quiet"))
    return module.function("shadow.touch", "void", parameters, build)


def _sweep(writer: Writer, start: Value, cells: Value, how: Value, marks: Marks) -> Value:
    """Mark cells that lie side by side; whether one is in conflict, `i1`.

    Words of a cell alternate: writer, reader. A conflict leaves the rest to `_inspect`.
    """
    words = vector("i32", 2 * LANES)
    is_read = writer.compare("eq", how, int(Touch.READ))
    readers = constants("i1", [k % 2 for k in range(2 * LANES)])
    own, several, oldest = (writer.splat(mark, 2 * LANES) for mark in marks)
    touched = writer.binary("xor", readers, writer.splat(writer.invert(is_read), 2 * LANES))
    watched = writer.either(writer.invert(readers), writer.splat(writer.invert(is_read), 2 * LANES))
    found = writer.variable(constant("i1", 0))
    with writer.repeat(cells) as position:
        offset = writer.mul(position, CELL_BYTES * LANES)
        place = writer.cast("inttoptr", writer.add(start, offset), "ptr")
        old = writer.load(words, place, CELL_BYTES)
        mark = writer.both(old, LOW_MARK)
        recent = writer.compare("uge", mark, oldest)
        foreign = writer.both(recent, writer.compare("ne", mark, own))
        bad = writer.any(writer.both(foreign, watched))
        writer.store(writer.either(writer.load("i1", found), bad), found)
        new = writer.select(foreign, joined(writer, mark, several), own)
        keep = writer.select(bad, i64(0), i64(-1))
        lanes = writer.both(touched, writer.mask(keep))
        writer.store(writer.select(lanes, new, old), place, CELL_BYTES)
    return writer.load("i1", found)


def _inspect(
    writer: Writer,
    access: Access,
    first: Value,
    step: Value,
    cells: Value,
    how: Value,
    shared: Value,
    quiet: Value,
    marks: Marks,
) -> None:
    """Go through the cells lane by lane, and report who is in conflict with whom."""
    faulty = writer.variable(i32(0))
    other = writer.variable(constant(_WORDS, 0))
    with writer.repeat(cells) as position:
        places = writer.add(first, writer.splat(writer.mul(position, step)))
        bad, whom = _visit(writer, access, places, how, shared, marks)
        bad = writer.both(bad, writer.invert(quiet))
        lanes = writer.bits(bad)
        writer.store(writer.either(writer.load("i32", faulty), lanes), faulty)
        writer.store(writer.select(bad, whom, writer.load(_WORDS, other)), other)
    lanes = writer.load("i32", faulty)
    with writer.when(writer.compare("ne", lanes, 0)):
        lane = writer.call("i32", "llvm.cttz.i32", lanes, constant("i1", 1))
        whom = writer.extract(writer.load(_WORDS, other), writer.resize(lane, "i64"))
        block_base = writer.read(access.context, Context, "mark_base")
        told = writer.sub(writer.both(whom, LOW_MARK), writer.select(shared, i32(0), block_base))
        told = writer.resize(told, "i64")
        with writer.when(shared):
            report(writer, access, BARRIER, lanes, told)
        with writer.when(writer.invert(shared)):
            report(writer, access, RACE, lanes, told)


def _marks(writer: Writer, context: Value, shared: Value) -> Marks:
    inner, outer = shared_marks(writer, context), global_marks(writer, context)
    return Marks(*(writer.select(shared, a, b) for a, b in zip(inner, outer, strict=True)))


def global_marks(writer: Writer, context: Value) -> Marks:
    """Of the current block and launch."""
    base = writer.read(context, Context, "mark_base")
    block = writer.add(writer.add(base, writer.read(context, Context, "block")), 1)
    blocks = writer.read(context, Context, "blocks")
    return Marks(block, writer.add(writer.add(base, blocks), 1), writer.add(base, 1))


def shared_marks(writer: Writer, context: Value) -> Marks:
    """Of the current warp and epoch."""
    fiber = writer.read(context, Context, "current")
    warp = writer.add(writer.read(fiber, Fiber, "warp"), 1)
    epoch = writer.shift_left(writer.read(context, Context, "epoch"), WARP_BITS)
    return Marks(writer.either(epoch, warp), writer.either(epoch, _SEVERAL_WARPS), epoch)


def _granule_bits(writer: Writer, context: Value, shared: Value) -> Value:
    inner = writer.read(context, Context, "shared_granule_bits")
    outer = writer.read(context, Context, "granule_bits")
    return writer.resize(writer.select(shared, inner, outer), "i64")


def _cell_places(
    writer: Writer, access: Access, quiet: Value, bits: Value, cells: Value
) -> tuple[Value, Value, Value]:
    """Addresses of every lane's first cell, the step in bytes to the next, and if they are tight.

    Where all lanes lie side by side, the cells are dealt out so that each step is contiguous.
    """
    base = writer.read(access.window, Site, "base")
    shadow = writer.read(access.window, Site, "shadow")
    offsets = writer.sub(access.addresses, writer.splat(base))
    numbers = writer.binary("lshr", offsets, writer.splat(bits))
    start = writer.extract(numbers, 0)
    lanes = constants("i64", range(LANES))
    expected = writer.add(writer.splat(start), writer.mul(lanes, writer.splat(cells)))
    apart = writer.any(writer.compare("ne", numbers, expected))
    full = writer.compare("eq", writer.bits(access.mask), -1)
    silent = writer.bits(quiet)
    one_kind = writer.either(writer.compare("eq", silent, 0), writer.compare("eq", silent, -1))
    tight = writer.both(writer.both(full, writer.invert(apart)), one_kind)
    numbers = writer.select(tight, writer.add(writer.splat(start), lanes), numbers)
    step = writer.select(tight, i64(CELL_BYTES * LANES), i64(CELL_BYTES))
    places = writer.add(writer.splat(shadow), writer.mul(numbers, CELL_BYTES))
    return places, step, tight


def _visit(
    writer: Writer,
    access: Access,
    places: Value,
    how: Value,
    shared: Value,
    marks: Marks,
) -> tuple[Value, Value]:
    """Compare one cell per lane with who touches it, and leave the new mark.

    Returns:
        Lanes in conflict, and with whom.
    """
    own, several, oldest = marks
    types = result_types(32, 2)
    zero = constant(_WORDS, 0)
    read = reader(writer.module, 32, 2)
    found = writer.call(struct_type(types), read, places, access.mask, zero, zero)
    wrote, looked = writer.unpack(found, types)
    foreign_write = _is_foreign(writer, writer.both(wrote, LOW_MARK), own, oldest)
    foreign_read = _is_foreign(writer, looked, own, oldest)
    was_atomic = writer.compare("slt", wrote, 0)
    is_read, is_write, is_atomic_read = (
        writer.splat(writer.compare("eq", how, int(kind)))
        for kind in (Touch.READ, Touch.WRITE, Touch.ATOMIC_READ)
    )
    reads_only = writer.either(is_read, is_atomic_read)
    _acquire(writer, access, how, shared, writer.both(foreign_write, was_atomic))
    clash = writer.either(writer.either(is_read, is_write), writer.invert(was_atomic))
    by_write = writer.both(foreign_write, clash)
    by_write = writer.both(by_write, _unordered(writer, access, shared, wrote))
    by_read = writer.both(foreign_read, writer.invert(reads_only))
    by_read = writer.both(by_read, _unordered(writer, access, shared, looked))
    seen = joined(writer, looked, writer.splat(several))
    new_read = writer.select(foreign_read, seen, writer.splat(own))
    new_read = writer.select(is_read, new_read, looked)
    new_write = _new_write(writer, wrote, own, several, foreign_write, was_atomic, is_write)
    new_write = writer.select(reads_only, wrote, new_write)
    write = writer_of(writer.module, 32, 2)
    writer.call("void", write, places, access.mask, new_write, new_read)
    bad = writer.both(writer.either(by_write, by_read), access.mask)
    return bad, writer.select(by_write, wrote, looked)


def _acquire(writer: Writer, access: Access, how: Value, shared: Value, seen: Value) -> None:
    """Note that this block has seen an atomic write of another, if the access acquires."""
    acquires = writer.compare("uge", how, int(Touch.ATOMIC_READ))
    wanted = writer.both(acquires, writer.invert(shared))
    with writer.when(writer.both(writer.any(writer.both(seen, access.mask)), wanted)):
        writer.write(access.context, Context, "acquired", 1)


def _is_foreign(writer: Writer, mark: Value, own: Value, oldest: Value) -> Value:
    recent = writer.compare("uge", mark, writer.splat(oldest))
    return writer.both(recent, writer.compare("ne", mark, writer.splat(own)))


def _new_write(
    writer: Writer,
    wrote: Value,
    own: Value,
    several: Value,
    foreign: Value,
    was_atomic: Value,
    is_write: Value,
) -> Value:
    """The writer's mark; a block's own plain write outlives its atomic ones."""
    mine = writer.splat(own)
    others = joined(writer, writer.both(wrote, LOW_MARK), writer.splat(several))
    atomic = writer.select(
        writer.both(foreign, was_atomic),
        writer.either(others, ATOMIC),
        writer.either(mine, ATOMIC),
    )
    kept = writer.select(writer.compare("eq", wrote, mine), mine, atomic)
    return writer.select(is_write, mine, kept)


def _unordered(writer: Writer, access: Access, shared: Value, mark: Value) -> Value:
    """Lanes whose counterpart has not released, or all if this block has acquired nothing."""
    acquired = writer.compare("ne", writer.read(access.context, Context, "acquired"), 0)
    result = writer.variable(constant(vector("i1"), 1))
    with writer.when(writer.both(acquired, writer.invert(shared))):
        released = writer.read(access.context, Context, "released")
        start = writer.splat(writer.cast("ptrtoint", released, "i64"))
        base = writer.splat(writer.read(access.context, Context, "mark_base"))
        mark = writer.both(mark, LOW_MARK)
        offsets = writer.shift_left(writer.resize(writer.sub(mark, base), "i64"), 2)
        wanted = writer.both(access.mask, writer.compare("ugt", mark, base))
        read = reader(writer.module, 32, 1)
        zero = constant(_WORDS, 0)
        flags = writer.call(_WORDS, read, writer.add(start, offsets), wanted, zero)
        writer.store(writer.compare("eq", flags, 0), result)
    return writer.load(vector("i1"), result)
