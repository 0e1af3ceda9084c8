"""Accesses whose lanes lie side by side in one window, or all at one place.

Most accesses are of this kind. They are checked and made as one piece of memory; whatever is
unusual about one is left, untouched, to the code that goes lane by lane.
"""

from __future__ import annotations

from dataclasses import dataclass

from .emit import Module, Writer
from .layout import COUNT_MEMORY, Context, Counters, Site
from .values import LANES, Value, constant, constants, i64, vector
from .windows import Access

PIECE_BYTES = 64
_NEAR_BYTES = 1 << 15
SECTOR_BITS = 5
"""Global memory moves in sectors of 32 bytes."""


@dataclass(frozen=True, slots=True)
class Span:
    """One piece of memory that the active lanes of an access cover."""

    good: Value
    """Whether the access is of this kind, and inside its window; else the rest means nothing."""
    same: Value
    """Whether all active lanes are at one place."""
    offset: Value
    """From the window's first byte, `i64`."""
    length: Value
    """In bytes, `i64`."""
    lanes: Value
    """Active lanes, `i64`; they are the first ones."""


def recognise(writer: Writer, access: Access, size_bytes: int) -> Span:
    """Look at an access of some lanes at least, with `size_bytes` for each lane."""
    bits = writer.bits(access.mask)
    hole = writer.both(bits, writer.add(bits, 1))
    first = writer.compare("eq", hole, 0)
    lanes = writer.resize(writer.call("i32", "llvm.ctpop.i32", bits), "i64")
    start = writer.extract(access.addresses, 0)
    distance = writer.sub(access.addresses, writer.splat(start))
    steps = constants("i64", [size_bytes * lane for lane in range(LANES)])
    side_by_side = _none(writer, writer.compare("ne", distance, steps), bits)
    same = _none(writer, writer.compare("ne", distance, constant(vector("i64"), 0)), bits)
    length = writer.select(same, i64(size_bytes), writer.mul(lanes, size_bytes))
    note_stride(writer, access, start, length)
    offset = writer.sub(start, writer.read(access.window, Site, "base"))
    size = writer.read(access.window, Site, "size")
    fits = writer.compare("uge", size, length)
    inside = writer.both(fits, writer.compare("ule", offset, writer.sub(size, length)))
    good = writer.both(writer.both(first, inside), writer.either(side_by_side, same))
    return Span(good, same, offset, length, lanes)


def note_stride(writer: Writer, access: Access, start: Value, length: Value) -> None:
    """Foresee that the next access is as far from this one as this one from the last.

    Warps of a block, and rounds of a loop, usually keep their distance. Blocks do not, and they lie
    far apart: then what follows is as good a guess as any.
    """
    stride = writer.sub(start, writer.read(access.window, Site, "last"))
    near = writer.compare("ult", writer.add(stride, _NEAR_BYTES), 2 * _NEAR_BYTES)
    writer.write(access.window, Site, "last", start)
    writer.write(access.window, Site, "stride", writer.select(near, stride, length))


def place(writer: Writer, access: Access, span: Span, field: str = "host") -> Value:
    """Where a span begins in a map that has the shape of the window, `ptr`."""
    start = writer.read(access.window, Site, field)
    return writer.cast("inttoptr", writer.add(start, span.offset), "ptr")


def is_shared(writer: Writer, access: Access) -> Value:
    """Whether an access is to shared memory, `i1`."""
    shared = writer.field(access.context, Context, "shared_window")
    return writer.compare("eq", access.window, shared)


def count(writer: Writer, access: Access, span: Span, size_bytes: int, stores: bool) -> None:
    """Count an access that is a span, if counting is on.

    Lanes side by side have no bank conflicts.
    """
    options = writer.read(access.context, Context, "options")
    with writer.when(writer.compare("ne", writer.both(options, COUNT_MEMORY), 0)):
        counters = writer.read(access.context, Context, "counters")
        moved = writer.mul(span.lanes, size_bytes)
        shared = is_shared(writer, access)
        with writer.when(shared):
            _add(writer, counters, "shared_bytes", moved)
        with writer.when(writer.invert(shared)):
            _add(writer, counters, "stored_bytes" if stores else "loaded_bytes", moved)
            _add(writer, counters, "sectors", _sectors(writer, access, span, size_bytes))


def _sectors(writer: Writer, access: Access, span: Span, size_bytes: int) -> Value:
    """In how many sectors the lanes begin."""
    start = writer.add(writer.read(access.window, Site, "base"), span.offset)
    last = writer.add(start, writer.sub(span.length, size_bytes))
    first = writer.shift_right(start, SECTOR_BITS)
    return writer.add(writer.sub(writer.shift_right(last, SECTOR_BITS), first), 1)


def _add(writer: Writer, counters: Value, name: str, amount: Value) -> None:
    total = writer.add(writer.read(counters, Counters, name), amount)
    writer.write(counters, Counters, name, total)


def all_defined(module: Module) -> str:
    """`defined(ptr map, i64 length) -> i1`: whether every byte of a piece of the map is 1."""

    def build(writer: Writer, start: Value, length: Value) -> None:
        good = constant(vector("i8", PIECE_BYTES), 1)
        missing = writer.variable(constant("i1", 0))
        with writer.pieces(length, PIECE_BYTES, "i8") as (position, mask):
            found = writer.masked_load(writer.at(start, position), mask, good, 1)
            odd = writer.any(writer.compare("ne", found, good))
            writer.store(writer.either(writer.load("i1", missing), odd), missing)
        writer.give(writer.invert(writer.load("i1", missing)))

    return module.function("span.defined", "i1", [("ptr", "map"), ("i64", "length")], build)


def set_defined(module: Module) -> str:
    """`define(ptr map, i64 length)`: note that a piece is written."""

    def build(writer: Writer, start: Value, length: Value) -> None:
        ones = constant(vector("i8", PIECE_BYTES), 1)
        with writer.pieces(length, PIECE_BYTES, "i8") as (position, mask):
            writer.masked_store(ones, writer.at(start, position), mask, 1)
        writer.give()

    return module.function("span.define", "void", [("ptr", "map"), ("i64", "length")], build)


def _none(writer: Writer, mask: Value, bits: Value) -> Value:
    return writer.compare("eq", writer.both(writer.bits(mask), bits), 0)
