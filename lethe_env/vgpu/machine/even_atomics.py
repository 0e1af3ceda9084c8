"""Atomic operations of whole warps whose lanes lie at one distance from each other.

That is how threads add up rows: each has one, two or four elements side by side, and operates on
one after the other. Cells that several blocks have reached with atomic operations, and nobody in
another way, look the same after one more; only such accesses are made here.
"""

from __future__ import annotations

from collections.abc import Callable

from .emit import Writer
from .layout import COUNT_MEMORY, Context, Counters, Site
from .sectors import CELL_BYTES
from .shadow import ATOMIC, global_marks, release
from .spans import SECTOR_BITS
from .values import LANES, Value, constant, constants, i64, vector
from .windows import Access

DISTANCES = (4, 1, 2)
"""Between lanes, in elements."""

_CELLS = 8
"""That are looked at together."""

Operation = Callable[[Value], Value]
"""From what is in memory to what shall be there, for all lanes."""


def write_even(
    writer: Writer,
    access: Access,
    width: int,
    operation: Operation,
    alone: Value,
    *,
    acquires: bool,
    releases: bool,
) -> None:
    """Write code that makes an operation on global memory and returns, if it is of this kind.

    Args:
        writer: Where to write, in a function that gives what was in memory.
        access: The access.
        width: Bits of an element.
        operation: What it does.
        alone: Whether no other thread runs blocks, `i1`.
        acquires: Whether it acquires.
        releases: Whether it releases.
    """
    size_bytes = width // 8
    first, second = (writer.extract(access.addresses, lane) for lane in range(2))
    distance = writer.sub(second, first)
    whole = writer.compare("eq", writer.bits(access.mask), -1)
    checks_nothing = writer.compare("eq", writer.read(access.window, Site, "defined"), 0)
    possible = writer.both(writer.both(whole, alone), checks_nothing)
    for step in DISTANCES:
        wanted = writer.compare("eq", distance, step * size_bytes)
        with writer.when(writer.both(possible, wanted)):
            row = _Row(writer, access, width, step)
            row.require(row.is_even())
            row.require(row.is_inside())
            row.check_settled(acquires)
            if releases:
                release(writer, access)
            found = row.read()
            row.write(operation(found))
            row.count()
            writer.give(found)
            writer.label(row.rest)


class _Row:
    """The elements that all lanes operate on, a fixed distance apart."""

    def __init__(self, writer: Writer, access: Access, width: int, step: int) -> None:
        self.rest = writer.name("rest")
        """Label of the code for accesses that are not of this kind."""
        self._writer, self._access = writer, access
        self._width, self._step = width, step
        self._size_bytes = width // 8
        self._extent = ((LANES - 1) * step + 1) * self._size_bytes
        self._start = writer.extract(access.addresses, 0)
        self._offset = writer.sub(self._start, self._field("base"))

    def require(self, condition: Value) -> None:
        """Go on if a condition holds."""
        following = self._writer.name("even")
        self._writer.branch(condition, following, self.rest)
        self._writer.label(following)

    def is_even(self) -> Value:
        """Whether each lane is at the same distance from the one before, `i1`."""
        writer = self._writer
        steps = [self._step * self._size_bytes * lane for lane in range(LANES)]
        expected = writer.add(writer.splat(self._start), constants("i64", steps))
        return writer.invert(writer.any(writer.compare("ne", self._access.addresses, expected)))

    def is_inside(self) -> Value:
        """Whether all of it lies in the window, `i1`."""
        writer, size = self._writer, self._field("size")
        fits = writer.compare("uge", size, self._extent)
        room = writer.sub(size, self._extent)
        return writer.both(fits, writer.compare("ule", self._offset, room))

    def check_settled(self, acquires: bool) -> None:
        """Go on if nobody looks for races, or nothing about the cells would change."""
        writer, context = self._writer, self._access.context
        with writer.when(writer.compare("ne", self._field("shadow"), 0)):
            granule = writer.read(context, Context, "granule_bits")
            self.require(writer.compare("eq", granule, self._size_bytes.bit_length() - 1))
            number = writer.shift_right(self._offset, self._size_bytes.bit_length() - 1)
            shadow = writer.cast("inttoptr", self._field("shadow"), "ptr")
            self.require(self._is_settled(writer.item(shadow, "i64", number)))
            if acquires:
                writer.write(context, Context, "acquired", 1)

    def _is_settled(self, cells: Value) -> Value:
        """Whether cells of the lanes, and no other ones, tell of atomic operations only, `i1`."""
        writer, words = self._writer, 2 * _CELLS
        marks = global_marks(writer, self._access.context)
        settled = writer.splat(writer.either(marks.several, ATOMIC), words)
        own = [k // 2 % self._step == 0 for k in range(words)]
        writers = constants("i1", [int(own[k] and k % 2 == 0) for k in range(words)])
        readers = constants("i1", [int(own[k] and k % 2 == 1) for k in range(words)])
        type_ = vector("i32", words)
        least, most = constant(type_, -1), constant(type_, 0)
        for position in range(0, LANES * self._step, _CELLS):
            found = writer.load(type_, writer.at(cells, CELL_BYTES * position), CELL_BYTES)
            least = writer.call(type_, f"llvm.umin.v{words}i32", least, found)
            most = writer.call(type_, f"llvm.umax.v{words}i32", most, found)
        other = writer.either(*(writer.compare("ne", end, settled) for end in (least, most)))
        recent = writer.compare("uge", most, writer.splat(marks.oldest, words))
        wrong = writer.either(writer.both(other, writers), writer.both(recent, readers))
        return writer.invert(writer.any(wrong))

    def read(self) -> Value:
        """What is in memory."""
        count = self._step * LANES
        zeros = constant(vector(f"i{self._width}", count), 0)
        wide = self._writer.masked_load(self._place(), self._own(), zeros, self._size_bytes)
        return self._writer.shuffle(wide, range(0, count, self._step))

    def write(self, values: Value) -> None:
        """Change it."""
        repeated = [k // self._step for k in range(self._step * LANES)]
        wide = self._writer.shuffle(values, repeated)
        self._writer.masked_store(wide, self._place(), self._own(), self._size_bytes)

    def count(self) -> None:
        """Count the operation, if counting is on; every sector in between has a lane."""
        writer, context = self._writer, self._access.context
        options = writer.read(context, Context, "options")
        with writer.when(writer.compare("ne", writer.both(options, COUNT_MEMORY), 0)):
            last = writer.add(self._start, self._extent - self._size_bytes)
            ends = (writer.shift_right(place, SECTOR_BITS) for place in (last, self._start))
            sectors = writer.add(writer.sub(*ends), 1)
            counters = writer.read(context, Context, "counters")
            for name, amount in (
                ("atomics", i64(LANES)),
                ("stored_bytes", i64(LANES * self._size_bytes)),
                ("sectors", sectors),
            ):
                total = writer.add(writer.read(counters, Counters, name), amount)
                writer.write(counters, Counters, name, total)

    def _place(self) -> Value:
        host = self._writer.add(self._field("host"), self._offset)
        return self._writer.cast("inttoptr", host, "ptr")

    def _own(self) -> Value:
        return constants("i1", [int(k % self._step == 0) for k in range(self._step * LANES)])

    def _field(self, name: str) -> Value:
        return self._writer.read(self._access.window, Site, name)
