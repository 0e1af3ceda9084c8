"""Products of `tcgen05` as tensor cores make them, of one block or of two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..alu.long_sums import FACTORS, ROWS, define_values
from . import tiles
from .cluster_memory import peer
from .emit import Module, Writer
from .layout import Context
from .products import Tile, multiply
from .tensor_memory import cells, check_defined, count_products, define, may_access
from .units import PAIRED_PRODUCT, Operation
from .values import Value, constant, declared, i32, i64, vector

SOURCES = ("f16", "bf16", "tf32", "e4m3", "e5m2")
"""Types of factors, by their numbers in an `Operation`."""

LEFT_ACROSS, RIGHT_ACROSS, FRESH, LEFT_IN_TENSOR_MEMORY, NEGATED = 1, 2, 4, 8, 16
"""Flags of an `Operation`, beside `PAIRED_PRODUCT`."""
WIDEST, TALLEST = 256, 128
"""The largest product of one block."""
_WORDS = 8
"""Columns of tensor memory that a sum of 32 bytes takes."""


def worker(module: Module, depth: int) -> str:
    """`product(context, operation)`: a product of factors with so many elements in a row."""
    names = [name for name in SOURCES if FACTORS[name].depth == depth]

    def build(writer: Writer, context: Value, operation: Value) -> None:
        job = _Job(writer, context, operation, names, depth)
        wide = job.read_right()
        with job.members() as (_, home):
            job.multiply(home, writer.either(job.read_left(home), wide))
        writer.give()

    parameters = declared("ptr context, ptr operation")
    return module.function(f"unit.product.{depth}", "void", parameters, build)


def looker(module: Module) -> str:
    """`look(context, operation)`: a product may read its factors from when it is handed over."""

    def build(writer: Writer, context: Value, operation: Value) -> None:
        for depth in sorted({FACTORS[name].depth for name in SOURCES}):
            names = [name for name in SOURCES if FACTORS[name].depth == depth]
            _Job(writer, context, operation, names, depth).look()
        _Job(writer, context, operation, SOURCES, 0).look_at_tensor_memory()
        writer.give()

    return module.function("unit.look", "void", declared("ptr context, ptr operation"), build)


class _Job:
    """One product as it is made.

    That of two blocks is made of two: each block has half of the left factor's rows and the same
    rows of the result, and half of the right factor's columns, which both use.
    """

    def __init__(self, writer: Writer, context: Value, operation: Value,
                 names: Sequence[str], depth: int) -> None:  # fmt: skip
        self._writer, self._context, self._operation = writer, context, operation
        self._names, self._depth = names, depth
        self._site = writer.read(operation, Operation, "site")
        self._rows, self._columns = (
            writer.resize(writer.read(operation, Operation, name), "i64")
            for name in ("rows", "columns")
        )
        self._sources = writer.read(operation, Operation, "sources")
        self._flags = writer.read(operation, Operation, "flags")
        self._left = Tile.reserve(writer, TALLEST, depth)
        self._right = Tile.reserve(writer, WIDEST, depth)
        self._paired = self._has(PAIRED_PRODUCT)
        low = writer.compare("eq", self._rows, TALLEST // 2)
        # Of 64 rows, 16 lie in every quarter of the lanes; of a pair's, all in the lower half,
        # and in the upper one further columns.
        spread = writer.both(low, writer.invert(self._paired))
        self._lane_step = writer.select(spread, i32(2 * ROWS), i32(ROWS))
        stacked = writer.both(low, self._paired)
        self._parts = writer.select(stacked, i64(2), i64(1))
        self._all_columns = writer.mul(self._columns, self._parts)
        self._members = writer.select(self._paired, i64(2), i64(1))
        self._share = writer.binary("udiv", self._all_columns, self._members)

    @contextmanager
    def members(self) -> Iterator[tuple[Value, Value]]:
        """Code for each block that takes part: its number, `i64`, and its context."""
        writer, context = self._writer, self._context
        rank, size = (
            writer.resize(writer.read(context, Context, name), "i64")
            for name in ("rank", "cluster_size")
        )
        first = writer.select(self._paired, writer.both(rank, ~1), rank)
        with writer.repeat(self._members) as number:
            wanted = writer.add(first, number)
            # A pair of which one block is missing has ended the launch.
            known = writer.call("i64", "llvm.umin.i64", wanted, writer.sub(size, 1))
            yield number, peer(writer, context, known)

    def _has(self, flag: int) -> Value:
        return self._writer.compare("ne", self._writer.both(self._flags, flag), 0)

    def look_at_tensor_memory(self) -> None:
        """Check what the product finds there, unless another one before it works on it."""
        writer = self._writer
        target = writer.read(self._operation, Operation, "target")
        left = writer.resize(writer.read(self._operation, Operation, "left"), "i32")
        inside, fresh = self._has(LEFT_IN_TENSOR_MEMORY), self._has(FRESH)
        for address, columns, wanted, parts in (
            (left, i64(_WORDS), inside, i64(1)),
            (target, self._columns, writer.invert(fresh), self._parts),
        ):
            # The product itself is the last of the queue.
            busy = count_products(writer, self._context, address, columns)
            own = writer.resize(writer.compare("eq", address, target), "i64")
            idle = writer.compare("ule", busy, own)
            with (
                writer.when(writer.both(idle, wanted)),
                self.members() as (_, home),
                writer.repeat(parts) as part,
                writer.repeat(writer.shift_right(self._rows, 4)) as block,
            ):
                self._may_read(home, self._lanes(address, block, part), columns)

    def look(self) -> None:
        """Check the factors in shared memory, as the warp that hands the product over."""
        writer = self._writer
        number = writer.both(self._sources, 0xFF)
        outside = writer.invert(self._has(LEFT_IN_TENSOR_MEMORY))
        for name in self._names:
            own = writer.compare("eq", number, SOURCES.index(name))
            with writer.when(own), self.members() as (member, home):
                with writer.when(outside):
                    self._read_left(home, name)
                self._read_right(home, name, member)

    def read_left(self, home: Value) -> Value:
        """Fetch a block's part of the left factor; whether f32 is too narrow."""
        writer = self._writer
        odd = writer.variable(constant("i1", 0))
        inside = self._has(LEFT_IN_TENSOR_MEMORY)
        for name in self._names:
            number = writer.both(self._sources, 0xFF)
            with writer.when(writer.compare("eq", number, SOURCES.index(name))):
                with writer.when(inside):
                    self._read_tensor_memory(home, name)
                with writer.when(writer.invert(inside)):
                    self._read_left(home, name)
                count = writer.mul(self._rows, self._depth)
                writer.store(self._left.find_exponents(writer, name, count), odd)
                with writer.when(self._has(NEGATED)):
                    self._negate_left(count)
        return writer.load("i1", odd)

    def _negate_left(self, count: Value) -> None:
        writer, row = self._writer, vector("i32", ROWS)
        with writer.repeat(writer.binary("udiv", count, i64(ROWS))) as index:
            place = writer.item(self._left.values, row, index)
            value = writer.binary("xor", writer.load(row, place, 4), constant(row, 1 << 31))
            writer.store(value, place, 4)

    def read_right(self) -> Value:
        """Fetch the right factor; whether f32 is too narrow."""
        writer = self._writer
        odd = writer.variable(constant("i1", 0))
        for name in self._names:
            number = writer.shift_right(self._sources, 8)
            with writer.when(writer.compare("eq", number, SOURCES.index(name))):
                with self.members() as (member, home):
                    self._read_right(home, name, member)
                count = writer.mul(self._all_columns, self._depth)
                writer.store(self._right.find_exponents(writer, name, count), odd)
        return writer.load("i1", odd)

    def _read_left(self, home: Value, source: str) -> None:
        self._read_shared(home, source, "left", self._rows, LEFT_ACROSS, self._left.values,
                          i64(1), self._rows)  # fmt: skip

    def _read_right(self, home: Value, source: str, member: Value) -> None:
        writer = self._writer
        start = writer.mul(member, writer.mul(self._share, self._depth))
        place = writer.item(self._right.values, "i32", start)
        self._read_shared(home, source, "right", self._share, RIGHT_ACROSS, place,
                          i64(self._depth), i64(1))  # fmt: skip

    def _read_shared(self, home: Value, source: str, side: str, rows: Value, across: int,
                     place: Value, row_step: Value, step: Value) -> None:  # fmt: skip
        writer = self._writer
        descriptor = writer.read(self._operation, Operation, side)
        read = tiles.reader(writer.module, source)
        writer.call("void", read, self._context, home, descriptor, swizzle(writer, descriptor),
                    self._site, i64(0), rows, self._has(across), place, row_step,
                    step)  # fmt: skip

    def _read_tensor_memory(self, home: Value, source: str) -> None:
        writer = self._writer
        bits = FACTORS[source].bits
        each = 32 // bits
        definition = define_values(source, ROWS)
        address = writer.resize(writer.read(self._operation, Operation, "left"), "i32")
        row = "<16 x i32>"
        with writer.repeat(writer.shift_right(self._rows, 4)) as block:
            own = self._lanes(address, block)
            with writer.when(self._may_read(home, own, i64(_WORDS))):
                start = cells(writer, home, own)
                for word in range(_WORDS):
                    given = writer.load(row, writer.item(start, "i32", word * TALLEST), 4)
                    for part in range(each):
                        raw = writer.resize(writer.shift_right(given, part * bits), f"i{bits}")
                        values = tiles.call_definition(writer, definition, [raw], ROWS)
                        position = writer.mul(self._rows, word * each + part)
                        position = writer.add(position, writer.mul(block, ROWS))
                        writer.store(values, writer.item(self._left.values, "i32", position), 4)

    def _lanes(self, address: Value, block: Value, part: Value | None = None) -> Value:
        """The address of a block of 16 rows, in a half of the lanes if there are two parts."""
        writer = self._writer
        lane = writer.mul(writer.resize(block, "i32"), 1 << 16)
        own = writer.add(address, writer.binary("mul", lane, self._lane_step))
        if part is None:
            return own
        return writer.add(own, writer.mul(writer.resize(part, "i32"), TALLEST // 2 << 16))

    def _may_read(self, home: Value, address: Value, columns: Value) -> Value:
        writer = self._writer
        fine = may_access(writer, home, address, columns, self._site)
        with writer.when(fine):
            check_defined(writer, home, address, columns, self._site)
        return fine

    def multiply(self, home: Value, wide: Value) -> None:
        """Add the product to the target in a block, 16 rows at a time."""
        writer = self._writer
        address = writer.read(self._operation, Operation, "target")
        fresh = self._has(FRESH)
        with (
            writer.repeat(self._parts) as part,
            writer.repeat(writer.shift_right(self._rows, 4)) as block,
        ):
            own = self._lanes(address, block, part)
            fine = may_access(writer, home, own, self._columns, self._site)
            with writer.when(fine):
                with writer.when(writer.invert(fresh)):
                    check_defined(writer, home, own, self._columns, self._site)
                define(writer, home, own, self._columns)
                first = writer.mul(block, ROWS)
                column = writer.mul(part, writer.mul(self._columns, self._depth))
                multiply(writer, self._names[0], self._left.at(writer, first),
                         self._right.at(writer, column), self._rows, wide,
                         cells(writer, home, own), self._columns, TALLEST, fresh)  # fmt: skip


def swizzle(writer: Writer, descriptor: Value) -> Value:
    """Logarithm of the chunks in a row of an atom: modes 2, 4 and 6 are 128, 64 and 32 bytes."""
    mode = writer.shift_right(descriptor, 62)
    return writer.select(writer.compare("eq", mode, 0), i64(0), writer.sub(i64(4), mode))


def workers(module: Module) -> dict[int, str]:
    """The functions of all depths, by the number of the left factor's type."""
    by_depth = {depth: worker(module, depth) for depth in {FACTORS[n].depth for n in SOURCES}}
    return {k: by_depth[FACTORS[name].depth] for k, name in enumerate(SOURCES)}
