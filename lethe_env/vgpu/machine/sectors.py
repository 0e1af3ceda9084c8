"""Cells of the sanitizer in bulk: one for a whole sector as long as its bytes share one history.

A window has a cell per sector beside the cells of its granules. While only whole sectors are
accessed, the sector's cell alone is kept. The first access to a part of one spreads it: the
granules' cells get what the sector's cell said, and that becomes a note, valid for this launch,
that the granules are to be looked at.
"""

from __future__ import annotations

from typing import NamedTuple

from .emit import Module, Writer
from .host_access import prefetch, reader
from .layout import Context, Site
from .spans import SECTOR_BITS, Span
from .values import LANES, Value, constant, constants, count_of, i32, i64, vector
from .windows import Access

CELL_BYTES = 8
LOW_MARK = 0x7FFFFFFF
SPREAD = 0x80000000
"""In the reader of a sector's cell: its granules have cells of their own."""

READ = 0
"""`shadow.Touch.READ`; anything else that comes here is a plain write."""

_SPREAD_BYTES = 1 << 13
"""Most memory of which an instruction remembers that its sectors are spread."""
_SECTOR_BYTES = 1 << SECTOR_BITS
_PIECE_BYTES = CELL_BYTES * LANES // 2
"""Cells of the sectors that a warp can access at once."""


class Marks(NamedTuple):
    """Who touches a cell, `i32` each."""

    own: Value
    """This block, or this warp in this epoch."""
    several: Value
    oldest: Value
    """Marks below this one are of earlier launches or epochs."""


def joined(writer: Writer, mark: Value, several: Value) -> Value:
    """What a cell says once another than whoever left a mark has touched it, as a vector.

    The marks that other blocks of a cluster leave (see `cluster_memory`) are above all, and stay.
    """
    name = f"llvm.umax.v{count_of(mark.type)}i32"
    return writer.call(mark.type, name, mark, several)


def touch_span(
    writer: Writer,
    access: Access,
    offset: Value,
    length: Value,
    how: int,
    marks: Marks,
    granule_bits: Value,
) -> Value:
    """Check and mark a piece of a window of global memory; whether all is well, `i1`.

    If not, nothing has changed that the code for single lanes would not change, too.
    """
    module = writer.module
    well = writer.variable(constant("i1", 0))
    ragged = writer.both(writer.either(offset, length), _SECTOR_BYTES - 1)
    with writer.when(writer.compare("eq", ragged, 0)):
        cells = writer.binary("lshr", length, i64(SECTOR_BITS))
        place = _cell(writer, access, "sectors", writer.shift_right(offset, SECTOR_BITS))
        soon = writer.add(offset, writer.read(access.window, Site, "stride"))
        soon = _cell(writer, access, "sectors", writer.shift_right(soon, SECTOR_BITS))
        prefetch(writer, soon, _PIECE_BYTES, write=True)
        done = writer.call("i1", mark_cells(module), place, cells, i32(how), *marks)
        writer.store(done, well)
    with writer.when(writer.invert(writer.load("i1", well))):
        last = writer.add(offset, writer.sub(length, 1))
        spread(writer, access, offset, last)
        cells = writer.binary("lshr", length, granule_bits)
        place = _cell(writer, access, "shadow", writer.binary("lshr", offset, granule_bits))
        done = writer.call("i1", mark_cells(module), place, cells, i32(how), *marks)
        writer.store(done, well)
    return writer.load("i1", well)


def touch_shared_span(
    writer: Writer, access: Access, span: Span, how: int, marks: Marks, granule_bits: Value
) -> Value:
    """The same for shared memory, which has cells of granules only."""
    cells = writer.binary("lshr", span.length, granule_bits)
    place = _cell(writer, access, "shadow", writer.binary("lshr", span.offset, granule_bits))
    return writer.call("i1", mark_cells(writer.module), place, cells, i32(how), *marks)


def mark_cells(module: Module) -> str:
    """`mark(ptr cells, i64 count, i32 how, marks…) -> i1`: go through cells that lie side by side.

    Words of a cell alternate: writer, reader. False where one is in conflict, or spread; such
    cells keep what they say.
    """

    def build(
        writer: Writer,
        start: Value,
        count: Value,
        how: Value,
        own: Value,
        several: Value,
        oldest: Value,
    ) -> None:
        is_write = writer.splat(writer.compare("ne", how, READ))
        readers = constants("i1", [k % 2 for k in range(LANES)])
        touched = writer.binary("xor", readers, is_write)
        watched = writer.either(writer.invert(readers), is_write)
        own, several, oldest = (writer.splat(mark) for mark in (own, several, oldest))
        found = writer.variable(constant("i1", 0))
        with writer.pieces(writer.shift_left(count, 1), LANES, "i32") as (position, mask):
            place = writer.item(start, "i32", position)
            old = writer.masked_load(place, mask, constant(vector("i32"), 0), 4)
            mark = writer.both(old, LOW_MARK)
            recent = writer.compare("uge", mark, oldest)
            foreign = writer.both(recent, writer.compare("ne", mark, own))
            spread_out = writer.both(writer.compare("slt", old, 0), writer.both(recent, readers))
            wrong = writer.either(writer.both(foreign, watched), spread_out)
            bad = writer.any(writer.both(wrong, mask))
            writer.store(writer.either(writer.load("i1", found), bad), found)
            with writer.when(writer.invert(bad)):
                new = writer.select(foreign, joined(writer, mark, several), own)
                writer.masked_store(new, place, writer.both(touched, mask), 4)
        writer.give(writer.invert(writer.load("i1", found)))

    parameters = [("ptr", "cells"), ("i64", "count"), ("i32", "how")]
    parameters += [("i32", name) for name in Marks._fields]
    return module.function("sector.mark", "i1", parameters, build)


def judged(
    writer: Writer, place: Value, cells: int, how: int, marks: Marks, sectors: bool
) -> tuple[Value, Value]:
    """What cells that lie side by side say after a plain access, and whether none is in conflict.

    Args:
        writer: Where to write.
        place: Where they lie, `ptr`.
        cells: How many.
        how: `READ`, or anything else for a write.
        marks: Who touches them.
        sectors: Whether they are those of sectors, which may be spread.

    Returns:
        The words of the cells, and an `i1`.
    """
    words = 2 * cells
    own, several, oldest = (writer.splat(mark, words) for mark in marks)
    is_reader = [k % 2 for k in range(words)]
    reads = how == READ
    old = writer.load(vector("i32", words), place, CELL_BYTES)
    mark = writer.both(old, LOW_MARK)
    recent = writer.compare("uge", mark, oldest)
    foreign = writer.both(recent, writer.compare("ne", mark, own))
    watched = constants("i1", [int(not reader or not reads) for reader in is_reader])
    wrong = writer.both(foreign, watched)
    if sectors:
        spread_out = writer.both(writer.compare("slt", old, 0), recent)
        readers = constants("i1", is_reader)
        wrong = writer.either(wrong, writer.both(spread_out, readers))
    touched = constants("i1", [int(reader == reads) for reader in is_reader])
    mine = writer.select(foreign, joined(writer, mark, several), own) if reads else own
    return writer.select(touched, mine, old), writer.invert(writer.any(wrong))


def spread_lanes(writer: Writer, access: Access, size: Value) -> None:
    """Spread the sectors that the lanes of an access to global memory touch."""
    first = writer.splat(writer.read(access.window, Site, "spread_from"))
    known = writer.read(access.window, Site, "spread_bytes")
    enough = writer.compare("uge", known, size)
    limit = writer.select(enough, writer.sub(writer.add(known, 1), size), i64(0))
    distance = writer.sub(access.addresses, first)
    outside = writer.compare("uge", distance, writer.splat(limit))
    with writer.when(writer.any(writer.both(outside, access.mask))):
        _spread_unknown(writer, access, size)
        _remember_spread(writer, access, size)


def _remember_spread(writer: Writer, access: Access, size: Value) -> None:
    """Spread what lies between the lanes of an access, if that is little, and remember it all."""
    everywhere = constant(vector("i64"), -1), constant(vector("i64"), 0)
    lowest, highest = (
        writer.call("i64", f"llvm.vector.reduce.{name}.v32i64", chosen)
        for name, chosen in zip(
            ("umin", "umax"),
            (writer.select(access.mask, access.addresses, other) for other in everywhere),
            strict=True,
        )
    )
    window, end = access.window, writer.add(highest, size)
    begin = writer.read(window, Site, "spread_from")
    known = writer.add(begin, writer.read(window, Site, "spread_bytes"))
    first = writer.call("i64", "llvm.umin.i64", lowest, begin)
    last = writer.call("i64", "llvm.umax.i64", end, known)
    near = writer.compare("ule", writer.sub(last, first), _SPREAD_BYTES)
    first, last = writer.select(near, first, lowest), writer.select(near, last, end)
    length = writer.sub(last, first)
    with writer.when(writer.compare("ule", length, _SPREAD_BYTES)):
        offset = writer.sub(first, writer.read(window, Site, "base"))
        spread(writer, access, offset, writer.add(offset, writer.sub(length, 1)))
        writer.write(window, Site, "spread_from", first)
        writer.write(window, Site, "spread_bytes", length)


def _spread_unknown(writer: Writer, access: Access, size: Value) -> None:
    """Spread the sectors that the lanes touch, whatever is known of them."""
    base, start = (
        writer.splat(writer.read(access.window, Site, name)) for name in ("base", "sectors")
    )
    offsets = writer.sub(access.addresses, base)
    lasts = writer.add(offsets, writer.splat(writer.sub(size, 1)))
    numbers = writer.shift_right(offsets, SECTOR_BITS)
    single = writer.compare("eq", writer.shift_right(lasts, SECTOR_BITS), numbers)
    readers = writer.add(writer.add(start, writer.mul(numbers, CELL_BYTES)), 4)
    nobody = constant(vector("i32"), 0)
    reading = reader(writer.module, 32, 1)
    looked = writer.call(nobody.type, reading, readers, access.mask, nobody)
    oldest = writer.add(writer.read(access.context, Context, "mark_base"), 1)
    done = writer.compare("uge", looked, writer.splat(writer.either(oldest, SPREAD)))
    undone = writer.both(access.mask, writer.invert(writer.both(single, done)))
    firsts, ends = writer.variable(offsets), writer.variable(lasts)
    with writer.lanes(writer.bits(undone)) as lane:
        first, last = (
            writer.load("i64", writer.item(slot, "i64", lane)) for slot in (firsts, ends)
        )
        spread(writer, access, first, last)


def spread(writer: Writer, access: Access, first: Value, last: Value) -> None:
    """Spread the sectors from one offset in a window to another."""
    number = writer.shift_right(first, SECTOR_BITS)
    count = writer.add(writer.sub(writer.shift_right(last, SECTOR_BITS), number), 1)
    oldest = writer.add(writer.read(access.context, Context, "mark_base"), 1)
    looked = writer.load("i32", writer.at(_cell(writer, access, "sectors", number), 4))
    done = writer.compare("uge", looked, writer.either(oldest, SPREAD))
    single = writer.compare("eq", count, 1)
    with writer.when(writer.invert(writer.both(done, single))):
        name = spreader(writer.module)
        writer.call("void", name, access.window, access.context, number, count)


def spreader(module: Module) -> str:
    """`spread(ptr window, ptr context, i64 first, i64 count)`: spread sectors from a number on."""

    def build(writer: Writer, window: Value, context: Value, first: Value, count: Value) -> None:
        base = writer.read(context, Context, "mark_base")
        oldest = writer.add(base, 1)
        granule = writer.resize(writer.read(context, Context, "granule_bits"), "i64")
        per_sector = writer.binary("lshr", i64(_SECTOR_BYTES), granule)
        with writer.repeat(count) as position:
            number = writer.add(first, position)
            sector = _at(writer, window, "sectors", number)
            wrote = writer.load("i32", sector)
            reader = writer.at(sector, 4)
            looked = writer.load("i32", reader)
            low = writer.both(looked, LOW_MARK)
            recent = writer.compare("uge", low, oldest)
            done = writer.both(recent, writer.compare("slt", looked, 0))
            with writer.when(writer.invert(done)):
                cells = _at(writer, window, "shadow", writer.mul(number, per_sector))
                with writer.repeat(per_sector) as position:
                    cell = writer.item(cells, "i64", position)
                    writer.store(wrote, cell)
                    writer.store(low, writer.at(cell, 4))
                writer.store(writer.either(oldest, SPREAD), reader)
        writer.give()

    parameters = [("ptr", "window"), ("ptr", "context"), ("i64", "first"), ("i64", "count")]
    return module.function("sector.spread", "void", parameters, build)


def _cell(writer: Writer, access: Access, field: str, number: Value) -> Value:
    return _at(writer, access.window, field, number)


def _at(writer: Writer, window: Value, field: str, number: Value) -> Value:
    start = writer.cast("inttoptr", writer.read(window, Site, field), "ptr")
    return writer.item(start, "i64", number)
