"""Whether two threads of a launch have touched one place in a way that only one order explains.

Every thread has cells of its own. Where two of them tell of the same place, it must have been read
only, or only been the target of atomic operations.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .emit import Module, Writer
from .layout import Context, Site
from .sectors import LOW_MARK, spreader
from .spans import SECTOR_BITS
from .values import LANES, Value, constant, i32, i64, vector

FINDER = "cells.clash"
"""`i1 clash(Site *windows, i64 threads, Context *context, i64 sectors)`."""

_CELLS = LANES // 2
"""Cells that are looked at together; each has two words."""
_WRITERS = 0x55555555
"""Of the words of these cells, those that tell of writers."""


@dataclass(frozen=True, slots=True)
class ThreadCells:
    """Where one thread has its cells of a window."""

    granules: int
    """Address of those of the granules."""
    sectors: int
    """Address of those of the sectors."""


def find_clash(
    address: int, threads: Sequence[ThreadCells], context: Context, size_bytes: int
) -> bool:
    """Whether two threads clash in a window.

    Args:
        address: of the native function.
        threads: where each has its cells of the window.
        context: of any thread.
        size_bytes: of the window.
    """
    windows = (Site * len(threads))()
    for window, cells in zip(windows, threads, strict=True):
        window.shadow, window.sectors = cells.granules, cells.sectors
    sectors = -(-size_bytes // (1 << SECTOR_BITS))
    return bool(_native(address)(windows, len(threads), ctypes.addressof(context), sectors))


@lru_cache(maxsize=4)
def _native(address: int) -> Callable[..., bool]:
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_bool, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64
    )
    return prototype(address)


def write_finder(module: Module) -> None:
    """Write the native function.

    Sectors are compared first. Where they clash, or have cells for their granules in any thread,
    all threads get cells for the granules, and these are compared.
    """
    compare, spread = _comparison(module), spreader(module)

    def build(writer: Writer, windows: Value, threads: Value, context: Value, count: Value) -> None:
        granule = writer.resize(writer.read(context, Context, "granule_bits"), "i64")
        per_sector = writer.binary("lshr", i64(1 << SECTOR_BITS), granule)
        oldest = writer.add(writer.read(context, Context, "mark_base"), 1)
        pieces = writer.shift_right(writer.add(count, _CELLS - 1), _CELLS.bit_length() - 1)
        with writer.repeat(pieces) as piece:
            first = writer.mul(piece, _CELLS)
            left = writer.call("i64", "llvm.umin.i64", writer.sub(count, first), i64(_CELLS))
            suspicious = writer.call(
                "i1", compare, windows, threads, i32(Site.sectors.offset), first, left, oldest
            )
            with writer.when(suspicious):
                with writer.repeat(threads) as thread:
                    window = _window(writer, windows, thread)
                    writer.call("void", spread, window, context, first, left)
                first, left = (writer.mul(value, per_sector) for value in (first, left))
                shadow = i32(Site.shadow.offset)
                found = writer.call("i1", compare, windows, threads, shadow, first, left, oldest)
                with writer.when(found):
                    writer.give(constant("i1", 1))
                    writer.label(writer.name("given"))
        writer.give(constant("i1", 0))

    parameters = [("ptr", "windows"), ("i64", "threads"), ("ptr", "context"), ("i64", "sectors")]
    module.function(FINDER, "i1", parameters, build)


def _comparison(module: Module) -> str:
    """`compare(ptr windows, i64 threads, i32 field, i64 first, i64 count, i32 oldest) -> i1`."""

    def build(
        writer: Writer,
        windows: Value,
        threads: Value,
        field: Value,
        first: Value,
        count: Value,
        oldest: Value,
    ) -> None:
        clash = writer.variable(i32(0))
        field = writer.resize(field, "i64")
        marks = writer.splat(oldest)
        with writer.pieces(writer.shift_left(count, 1), LANES, "i32") as (position, mask):
            place = writer.add(writer.shift_left(first, 1), position)
            once, twice, plain, atomic, looked = (writer.variable(i32(0)) for _ in range(5))
            with writer.repeat(threads) as thread:
                start = writer.load("i64", writer.at(_window(writer, windows, thread), field))
                words = writer.item(writer.cast("inttoptr", start, "ptr"), "i32", place)
                found = writer.masked_load(words, mask, constant(vector("i32"), 0), 4)
                recent = writer.compare("uge", writer.both(found, LOW_MARK), marks)
                bits = writer.bits(recent)
                wrote = writer.both(bits, _WRITERS)
                read = writer.both(writer.shift_right(bits, 1), _WRITERS)
                ordered = writer.bits(writer.compare("slt", found, 0))
                touched = writer.either(wrote, read)
                _add(writer, twice, writer.both(writer.load("i32", once), touched))
                _add(writer, once, touched)
                _add(writer, plain, writer.both(wrote, writer.invert(ordered)))
                # Of a sector with cells for its granules, this is not known: it may be anything.
                _add(writer, plain, writer.both(read, writer.shift_right(ordered, 1)))
                _add(writer, atomic, writer.both(wrote, ordered))
                _add(writer, looked, read)
            values = [writer.load("i32", slot) for slot in (twice, plain, atomic, looked)]
            mixed = writer.either(values[1], writer.both(values[2], values[3]))
            _add(writer, clash, writer.both(values[0], mixed))
        writer.give(writer.compare("ne", writer.load("i32", clash), 0))

    parameters = [("ptr", "windows"), ("i64", "threads"), ("i32", "field"), ("i64", "first")]
    parameters += [("i64", "count"), ("i32", "oldest")]
    return module.function("cells.compare", "i1", parameters, build)


def _window(writer: Writer, windows: Value, thread: Value) -> Value:
    return writer.item(windows, f"[{ctypes.sizeof(Site)} x i8]", thread)


def _add(writer: Writer, place: Value, bits: Value) -> None:
    writer.store(writer.either(writer.load("i32", place), bits), place)
