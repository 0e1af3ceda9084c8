"""Accesses whose lanes lie anywhere in one window, as long as nothing is wrong with any of them.

What each lane accesses is moved as one piece. Conflicts are left to the code
that tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from . import lanes
from .emit import Module, Writer
from .host_access import LINE_BYTES, join, prefetch, reader, split, writer_of
from .layout import Context, Site
from .sectors import CELL_BYTES, LOW_MARK, Marks, joined, spread_lanes, touch_span
from .shadow import ATOMIC, Touch, global_marks, shared_marks
from .spans import is_shared
from .values import LANES, Value, constant, constants, count_of, i32, i64, vector
from .windows import Access, host_addresses, lanes_inside

_GRANULES = ("shared_granule_bits", "granule_bits")
_CELL_COUNTS = (1, 2, 4, 8)
_GROUP = 8
"""Lanes that are looked at together."""


def is_plain(writer: Writer, access: Access, size_bytes: int) -> Value:
    """Whether all lanes are inside the window, `i1`."""
    bits = writer.bits(access.mask)
    inside = writer.bits(lanes_inside(writer, access, size_bytes))
    return writer.compare("eq", writer.both(bits, writer.invert(inside)), 0)


def may_touch(writer: Writer, access: Access, size_bytes: int, touch: Touch) -> Value:
    """Check and mark the cells of a plain access; whether all is well, `i1`."""
    well = writer.variable(constant("i1", 1))
    with writer.when(writer.compare("ne", writer.read(access.window, Site, "shadow"), 0)):
        shared = is_shared(writer, access)
        with writer.when(shared):
            writer.store(_mark_shared(writer, access, size_bytes, touch), well)
        with writer.when(writer.invert(shared)):
            name = _group_marker(writer.module, size_bytes, touch)
            writer.store(writer.call("i1", name, *access.values()), well)
    return writer.load("i1", well)


def _group_marker(module: Module, size_bytes: int, touch: Touch) -> str:
    """`mark(access…) -> i1`: in global memory, where groups of lanes lie side by side.

    So do tiles of matrices, whose rows are shorter than a warp.
    """

    def build(writer: Writer, *parameters: Value) -> None:
        access = Access(*parameters)
        firsts = [lane - lane % _GROUP for lane in range(LANES)]
        starts = writer.shuffle(access.addresses, firsts)
        steps = [size_bytes * (lane % _GROUP) for lane in range(LANES)]
        distance = writer.sub(access.addresses, starts)
        apart = writer.any(writer.compare("ne", distance, constants("i64", steps)))
        full = writer.compare("eq", writer.bits(access.mask), -1)
        well = writer.variable(writer.both(full, writer.invert(apart)))
        marks = global_marks(writer, access.context)
        granule = writer.resize(writer.read(access.context, Context, "granule_bits"), "i64")
        base = writer.read(access.window, Site, "base")
        for lane in range(0, LANES, _GROUP):
            with writer.when(writer.load("i1", well)):
                offset = writer.sub(writer.extract(access.addresses, lane), base)
                length = i64(size_bytes * _GROUP)
                done = touch_span(writer, access, offset, length, int(touch), marks, granule)
                writer.store(done, well)
        writer.give(writer.load("i1", well))

    name = f"groups.mark.{size_bytes}.{touch.name.lower()}"
    return module.function(name, "i1", Access.parameters(), build)


def read_lanes(
    writer: Writer, access: Access, width: int, old: Sequence[Value]
) -> tuple[list[Value], Value]:
    """What a plain access finds, and whether all of it is defined, `i1`."""
    count = len(old)
    size_bytes = width * count // 8
    results = [writer.variable(value) for value in old]
    written = writer.variable(is_defined(writer, access, size_bytes))
    all_lanes = lanes.are_all(writer, access)
    with writer.when(all_lanes):
        places = _places(writer, access, "host")
        _prefetch_next(writer, access, places, size_bytes)
        found = lanes.take(writer, places, size_bytes)
        wide = writer.cast("bitcast", found, vector(f"i{width}", LANES * count))
        for result, value in zip(results, split(writer, wide, count), strict=True):
            writer.store(value, result)
    with writer.when(writer.invert(all_lanes)):
        piece = vector("i8", size_bytes)
        whole = writer.variable(join(writer, old))
        with _each_lane(writer, access, "host") as (lane, place):
            writer.store(writer.load(piece, place, 1), writer.item(whole, piece, lane), 1)
        wide = writer.load(vector(f"i{width}", LANES * count), whole)
        for result, value in zip(results, split(writer, wide, count), strict=True):
            writer.store(value, result)
    values = [writer.load(value.type, place) for value, place in zip(old, results, strict=True)]
    return values, writer.load("i1", written)


def _prefetch_next(writer: Writer, access: Access, places: Value, size_bytes: int) -> None:
    """Ask for what the next such access to global memory is likely to want."""
    with writer.when(writer.invert(is_shared(writer, access))):
        stride = writer.read(access.window, Site, "stride")
        for place in lanes.each(writer, places)[:: max(1, LINE_BYTES // size_bytes)]:
            prefetch(writer, writer.at(place, stride), LINE_BYTES)


def is_defined(writer: Writer, access: Access, size_bytes: int) -> Value:
    """Whether all that a plain access covers has been written, `i1`."""
    well = writer.variable(constant("i1", 1))
    with writer.when(writer.compare("ne", writer.read(access.window, Site, "defined"), 0)):
        all_lanes = lanes.are_all(writer, access)
        with writer.when(all_lanes):
            places = _places(writer, access, "defined")
            writer.store(lanes.hold(writer, places, size_bytes, 1), well)
        with writer.when(writer.invert(all_lanes)):
            piece = vector("i8", size_bytes)
            ones = constant(piece, 1)
            written = writer.variable(ones)
            with _each_lane(writer, access, "defined") as (_, place):
                found = writer.load(piece, place, 1)
                writer.store(writer.both(writer.load(piece, written), found), written)
            missing = writer.compare("ne", writer.load(piece, written), ones)
            writer.store(writer.invert(writer.any(missing)), well)
    return writer.load("i1", well)


def write_lanes(writer: Writer, access: Access, width: int, values: Sequence[Value]) -> None:
    """Make a plain store; where lanes overlap, the highest one wins."""
    size_bytes = width * len(values) // 8
    wide = join(writer, values)
    all_lanes = lanes.are_all(writer, access)
    with writer.when(all_lanes):
        lanes.put(writer, _places(writer, access, "host"), wide)
    with writer.when(writer.invert(all_lanes)):
        piece = vector("i8", size_bytes)
        whole = writer.variable(wide)
        with _each_lane(writer, access, "host") as (lane, place):
            writer.store(writer.load(piece, writer.item(whole, piece, lane), 1), place, 1)
    define_lanes(writer, access, size_bytes, defined=True)


def define_lanes(writer: Writer, access: Access, size_bytes: int, defined: bool) -> None:
    """Note that what a plain access covers is written, or that it is not to be read."""
    with writer.when(writer.compare("ne", writer.read(access.window, Site, "defined"), 0)):
        all_lanes = lanes.are_all(writer, access)
        with writer.when(all_lanes):
            lanes.fill(writer, _places(writer, access, "defined"), size_bytes, int(defined))
        with writer.when(writer.invert(all_lanes)):
            value = constant(vector("i8", size_bytes), int(defined))
            with _each_lane(writer, access, "defined") as (_, place):
                writer.store(value, place, 1)


def _mark_shared(writer: Writer, access: Access, size_bytes: int, touch: Touch) -> Value:
    """Check and mark cells of shared memory; false, too, where a lane touches very many."""
    granule = writer.read(access.context, Context, "shared_granule_bits")
    count = writer.binary("lshr", i32(size_bytes), granule)
    well = writer.variable(constant("i1", 0))
    for cells in (c for c in _CELL_COUNTS if c <= size_bytes):
        with writer.when(writer.compare("eq", count, cells)):
            name = _marker(writer.module, cells, touch)
            writer.store(writer.call("i1", name, *access.values()), well)
    return writer.load("i1", well)


def _marker(module: Module, cells: int, touch: Touch) -> str:
    """`mark(access…) -> i1`: whether no cell of shared memory that the lanes touch is in conflict.

    Every lane touches so many cells. Lanes in conflict leave their cells alone.
    """

    def build(writer: Writer, *parameters: Value) -> None:
        access = Access(*parameters)
        marks = shared_marks(writer, access.context)
        base, start = (writer.read(access.window, Site, name) for name in ("base", "shadow"))
        granule = writer.read(access.context, Context, "shared_granule_bits")
        offsets = writer.sub(access.addresses, writer.splat(base))
        numbers = writer.binary("lshr", offsets, writer.splat(writer.resize(granule, "i64")))
        firsts = writer.shift_left(numbers, 3)
        places = writer.variable(writer.add(firsts, writer.splat(start)))
        with writer.when(lanes.are_all(writer, access)):
            found = lanes.take(writer, places, CELL_BYTES * cells)
            with writer.when(writer.invert(_is_disputed(writer, found, marks))):
                _leave_mark(writer, places, cells, marks.own, touch)
                writer.give(constant("i1", 1))
                writer.label(writer.name("given"))
            bad, new = _judge(writer, found, marks, touch)
            with writer.when(writer.invert(bad)):
                lanes.put(writer, places, new)
                writer.give(constant("i1", 1))
                writer.label(writer.name("given"))
        trouble = writer.variable(constant("i1", 0))
        with writer.lanes(writer.bits(access.mask)) as lane:
            address = writer.load("i64", writer.item(places, "i64", lane))
            place = writer.cast("inttoptr", address, "ptr")
            old = writer.load(vector("i64", cells), place, CELL_BYTES)
            bad, new = _judge(writer, old, marks, touch)
            writer.store(writer.either(writer.load("i1", trouble), bad), trouble)
            writer.store(writer.select(bad, old, new), place, CELL_BYTES)
        writer.give(writer.invert(writer.load("i1", trouble)))

    name = f"lanes.mark.{cells}.{touch.name.lower()}"
    return module.function(name, "i1", Access.parameters(), build)


def _is_disputed(writer: Writer, cells: Value, marks: Marks) -> Value:
    """Whether another warp may have touched any of some cells of shared memory in this epoch."""
    words = 2 * count_of(cells.type)
    own, oldest = (writer.splat(mark, words) for mark in (marks.own, marks.oldest))
    old = writer.cast("bitcast", cells, vector("i32", words))
    recent = writer.compare("uge", old, oldest)
    return writer.any(writer.both(recent, writer.compare("ne", old, own)))


def _leave_mark(writer: Writer, places: Value, cells: int, own: Value, touch: Touch) -> None:
    """Make a warp the last one that read, or wrote, the cells at the places of its lanes."""
    words = 2 * cells
    marks = writer.splat(own, words)
    touched = constants("i1", [int((k % 2 == 1) == (touch is Touch.READ)) for k in range(words)])
    for place in lanes.each(writer, places):
        if cells == 1:
            writer.store(own, writer.at(place, 4 * int(touch is Touch.READ)), 4)
        else:
            old = writer.load(marks.type, place, CELL_BYTES)
            writer.store(writer.select(touched, marks, old), place, CELL_BYTES)


def _judge(writer: Writer, cells: Value, marks: Marks, touch: Touch) -> tuple[Value, Value]:
    """Whether any of some cells of shared memory is in conflict, and what they say if none is."""
    words = 2 * count_of(cells.type)
    own, several, oldest = (writer.splat(mark, words) for mark in marks)
    readers = constants("i1", [k % 2 for k in range(words)])
    old = writer.cast("bitcast", cells, vector("i32", words))
    mark = writer.both(old, LOW_MARK)
    recent = writer.compare("uge", mark, oldest)
    foreign = writer.both(recent, writer.compare("ne", mark, own))
    watched = foreign
    touched = writer.invert(readers)
    if touch is Touch.READ:
        watched, touched = writer.both(foreign, touched), readers
    left = writer.select(foreign, joined(writer, mark, several), own)
    new = writer.select(touched, left, old)
    return writer.any(watched), writer.cast("bitcast", new, cells.type)


def atomic_marker(module: Module, size_bytes: int, acquires: bool) -> str:
    """`mark(access…) -> i1`: check and mark the cells of an atomic operation.

    False where a cell is in conflict, or where a lane has several cells.
    """

    def build(writer: Writer, *parameters: Value) -> None:
        access = Access(*parameters)
        shared = is_shared(writer, access)
        inner, outer = (f(writer, access.context) for f in (shared_marks, global_marks))
        own, several, oldest = (
            writer.select(shared, a, b) for a, b in zip(inner, outer, strict=True)
        )
        bits = [writer.read(access.context, Context, name) for name in _GRANULES]
        granule = writer.resize(writer.select(shared, *bits), "i64")
        one = writer.compare("eq", writer.binary("shl", i64(1), granule), size_bytes)
        with writer.when(writer.invert(one)):
            writer.give(constant("i1", 0))
            writer.label(writer.name("given"))
        with writer.when(writer.invert(shared)):
            spread_lanes(writer, access, i64(size_bytes))
        start, base = (
            writer.splat(writer.read(access.window, Site, name)) for name in ("shadow", "base")
        )
        offsets = writer.sub(access.addresses, base)
        numbers = writer.binary("lshr", offsets, writer.splat(granule))
        places = writer.add(start, writer.shift_left(numbers, 3))
        zeros = constant(vector("i64"), 0)
        cells = writer.call(zeros.type, reader(module, 64, 1), places, access.mask, zeros)
        wrote, looked = (
            writer.resize(half, "i32") for half in (cells, writer.shift_right(cells, 32))
        )
        marks = (writer.splat(mark) for mark in (own, several, oldest))
        bad, other, new = _judge_atomic(writer, wrote, looked, Marks(*marks))
        changed = writer.any(writer.both(writer.compare("ne", new, wrote), access.mask))
        with writer.when(changed):
            # Lanes in one cell leave the same mark there.
            kept = writer.both(cells, -1 << 32)
            updated = writer.either(kept, writer.resize(new, "i64"))
            writer.call("void", writer_of(module, 64, 1), places, access.mask, updated)
        trouble, seen = (writer.any(writer.both(found, access.mask)) for found in (bad, other))
        if acquires:
            with writer.when(writer.both(seen, writer.invert(shared))):
                writer.write(access.context, Context, "acquired", 1)
        writer.give(writer.invert(trouble))

    name = f"lanes.mark.atomic.{size_bytes}.{acquires:d}"
    return module.function(name, "i1", Access.parameters(), build)


def _judge_atomic(
    writer: Writer, wrote: Value, looked: Value, marks: Marks
) -> tuple[Value, Value, Value]:
    """Cells in conflict with an atomic operation, those of another's, and the new writers."""
    low = writer.both(wrote, LOW_MARK)
    foreign, foreign_read = (
        writer.both(writer.compare("uge", m, marks.oldest), writer.compare("ne", m, marks.own))
        for m in (low, looked)
    )
    atomic = writer.compare("slt", wrote, 0)
    bad = writer.either(writer.both(foreign, writer.invert(atomic)), foreign_read)
    plain = writer.compare("eq", wrote, marks.own)
    kept = writer.select(plain, marks.own, writer.either(marks.own, ATOMIC))
    new = writer.select(foreign, writer.either(joined(writer, low, marks.several), ATOMIC), kept)
    return bad, writer.both(foreign, atomic), writer.select(bad, wrote, new)


def _places(writer: Writer, access: Access, field: str) -> Value:
    """A stack variable with the host addresses of all lanes in a map of the window."""
    return writer.variable(host_addresses(writer, access, field))


@contextmanager
def _each_lane(writer: Writer, access: Access, field: str) -> Iterator[tuple[Value, Value]]:
    """A loop over active lanes; gives the lane, `i64`, and its place in a map of the window."""
    places = _places(writer, access, field)
    with writer.lanes(writer.bits(access.mask)) as lane:
        address = writer.load("i64", writer.item(places, "i64", lane))
        yield lane, writer.cast("inttoptr", address, "ptr")
