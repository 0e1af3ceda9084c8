"""Accesses whose lanes lie anywhere in one window, as long as nothing is wrong with any of them.

A loop over the active lanes moves what each accesses as one piece. Conflicts are left to the code
that tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .emit import Module, Writer
from .host_access import join, reader, split, writer_of
from .layout import Context, Site
from .sectors import CELL_BYTES, LOW_MARK, Marks, spread_lanes, touch_span
from .shadow import ATOMIC, Touch, global_marks, shared_marks
from .spans import is_shared
from .values import LANES, Value, constant, constants, i64, vector
from .windows import Access, lanes_inside

_GRANULES = ("shared_granule_bits", "granule_bits")
_GROUP = 8
"""Lanes that are looked at together."""


def is_plain(writer: Writer, access: Access, size_bytes: int) -> Value:
    """Whether all lanes are inside the window, `i1`."""
    bits = writer.bits(access.mask)
    inside = writer.bits(lanes_inside(writer, access, size_bytes))
    return writer.compare("eq", writer.both(bits, writer.invert(inside)), 0)


def may_touch(
    writer: Writer, access: Access, size_bytes: int, granule_bits: int, touch: Touch
) -> Value:
    """Check and mark the cells of a plain access; whether all is well, `i1`."""
    well = writer.variable(constant("i1", 1))
    with writer.when(writer.compare("ne", writer.read(access.window, Site, "shadow"), 0)):
        shared = is_shared(writer, access)
        with writer.when(shared):
            name = _marker(writer.module, size_bytes, granule_bits, touch)
            writer.store(writer.call("i1", name, *access.values()), well)
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
    piece = vector("i8", size_bytes)
    ones = constant(piece, 1)
    whole = writer.variable(join(writer, old))
    written = writer.variable(ones)
    start, defined = (writer.read(access.window, Site, name) for name in ("host", "defined"))
    checked = writer.compare("ne", defined, 0)
    with _each_lane(writer, access) as (lane, offset):
        value = writer.load(piece, _pointer(writer, start, offset), 1)
        writer.store(value, writer.item(whole, piece, lane), 1)
        with writer.when(checked):
            found = writer.load(piece, _pointer(writer, defined, offset), 1)
            writer.store(writer.both(writer.load(piece, written), found), written)
    missing = writer.compare("ne", writer.load(piece, written), ones)
    wide = writer.load(vector(f"i{width}", LANES * count), whole)
    return split(writer, wide, count), writer.invert(writer.any(missing))


def is_defined(writer: Writer, access: Access, size_bytes: int) -> Value:
    """Whether all that a plain access covers has been written, `i1`."""
    piece = vector("i8", size_bytes)
    ones = constant(piece, 1)
    written = writer.variable(ones)
    defined = writer.read(access.window, Site, "defined")
    with (
        writer.when(writer.compare("ne", defined, 0)),
        _each_lane(writer, access) as (_, offset),
    ):
        found = writer.load(piece, _pointer(writer, defined, offset), 1)
        writer.store(writer.both(writer.load(piece, written), found), written)
    missing = writer.compare("ne", writer.load(piece, written), ones)
    return writer.invert(writer.any(missing))


def write_lanes(writer: Writer, access: Access, width: int, values: Sequence[Value]) -> None:
    """Make a plain store; where lanes overlap, the highest one wins."""
    size_bytes = width * len(values) // 8
    piece = vector("i8", size_bytes)
    whole = writer.variable(join(writer, values))
    start = writer.read(access.window, Site, "host")
    with _each_lane(writer, access) as (lane, offset):
        value = writer.load(piece, writer.item(whole, piece, lane), 1)
        writer.store(value, _pointer(writer, start, offset), 1)
    define_lanes(writer, access, size_bytes, defined=True)


def define_lanes(writer: Writer, access: Access, size_bytes: int, defined: bool) -> None:
    """Note that what a plain access covers is written, or that it is not to be read."""
    start = writer.read(access.window, Site, "defined")
    with (
        writer.when(writer.compare("ne", start, 0)),
        _each_lane(writer, access) as (_, offset),
    ):
        value = constant(vector("i8", size_bytes), int(defined))
        writer.store(value, _pointer(writer, start, offset), 1)


def _marker(module: Module, size_bytes: int, granule_bits: int, touch: Touch) -> str:
    """`mark(access…) -> i1`: whether no cell of shared memory that the lanes touch is in conflict.

    Lanes in conflict leave their cells alone.
    """
    cells = max(1, size_bytes >> granule_bits)
    words = 2 * cells

    def build(writer: Writer, *parameters: Value) -> None:
        access = Access(*parameters)
        own, several, oldest = (
            writer.splat(mark, words) for mark in shared_marks(writer, access.context)
        )
        readers = constants("i1", [k % 2 for k in range(words)])
        touched = writer.invert(readers) if touch is Touch.WRITE else readers
        start = writer.read(access.window, Site, "shadow")
        trouble = writer.variable(constant("i1", 0))
        with _each_lane(writer, access) as (_, offset):
            first = writer.shift_left(writer.shift_right(offset, granule_bits), 3)
            place = _pointer(writer, start, first)
            old = writer.load(vector("i32", words), place, CELL_BYTES)
            mark = writer.both(old, LOW_MARK)
            recent = writer.compare("uge", mark, oldest)
            foreign = writer.both(recent, writer.compare("ne", mark, own))
            watched = foreign
            if touch is Touch.READ:
                watched = writer.both(foreign, writer.invert(readers))
            bad = writer.any(watched)
            writer.store(writer.either(writer.load("i1", trouble), bad), trouble)
            new = writer.select(touched, writer.select(foreign, several, own), old)
            writer.store(writer.select(bad, old, new), place, CELL_BYTES)
        writer.give(writer.invert(writer.load("i1", trouble)))

    name = f"lanes.mark.{size_bytes}.{granule_bits}.{touch.name.lower()}"
    return module.function(name, "i1", Access.parameters(), build)


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
        trouble, seen = (writer.any(writer.both(lanes, access.mask)) for lanes in (bad, other))
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
    new = writer.select(foreign, writer.either(marks.several, ATOMIC), kept)
    return bad, writer.both(foreign, atomic), writer.select(bad, wrote, new)


@contextmanager
def _each_lane(writer: Writer, access: Access) -> Iterator[tuple[Value, Value]]:
    """A loop over active lanes; gives the lane and its offset in the window, `i64` both."""
    base = writer.read(access.window, Site, "base")
    offsets = writer.variable(writer.sub(access.addresses, writer.splat(base)))
    with writer.lanes(writer.bits(access.mask)) as lane:
        yield lane, writer.load("i64", writer.item(offsets, "i64", lane))


def _pointer(writer: Writer, start: Value, offset: Value) -> Value:
    return writer.cast("inttoptr", writer.add(start, offset), "ptr")
