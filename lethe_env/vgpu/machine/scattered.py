"""Accesses whose lanes lie anywhere in one window, as long as nothing is wrong with any of them.

A loop over the active lanes moves what each accesses as one piece. Conflicts, and the cells of
global memory, are left to the code that tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .emit import Module, Writer
from .host_access import join, split
from .layout import Site
from .sectors import CELL_BYTES, LOW_MARK
from .shadow import Touch, shared_marks
from .spans import is_shared
from .values import LANES, Value, constant, constants, vector
from .windows import Access, lanes_inside


def is_plain(writer: Writer, access: Access, size_bytes: int) -> Value:
    """Whether all lanes are inside the window, and its cells are those of shared memory, `i1`."""
    bits = writer.bits(access.mask)
    inside = writer.bits(lanes_inside(writer, access, size_bytes))
    stray = writer.both(bits, writer.invert(inside))
    free = writer.compare("eq", writer.read(access.window, Site, "shadow"), 0)
    free = writer.either(free, is_shared(writer, access))
    return writer.both(writer.compare("eq", stray, 0), free)


def may_touch(
    writer: Writer, access: Access, size_bytes: int, granule_bits: int, touch: Touch
) -> Value:
    """Check and mark the cells of a plain access; whether there is no conflict, `i1`."""
    well = writer.variable(constant("i1", 1))
    with writer.when(writer.compare("ne", writer.read(access.window, Site, "shadow"), 0)):
        name = _marker(writer.module, size_bytes, granule_bits, touch)
        writer.store(writer.call("i1", name, *access.values()), well)
    return writer.load("i1", well)


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


@contextmanager
def _each_lane(writer: Writer, access: Access) -> Iterator[tuple[Value, Value]]:
    """A loop over active lanes; gives the lane and its offset in the window, `i64` both."""
    base = writer.read(access.window, Site, "base")
    offsets = writer.variable(writer.sub(access.addresses, writer.splat(base)))
    with writer.lanes(writer.bits(access.mask)) as lane:
        yield lane, writer.load("i64", writer.item(offsets, "i64", lane))


def _pointer(writer: Writer, start: Value, offset: Value) -> Value:
    return writer.cast("inttoptr", writer.add(start, offset), "ptr")
