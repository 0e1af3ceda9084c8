"""`tcgen05.mma` and `tcgen05.commit`: products that tensor cores make on their own."""

from __future__ import annotations

from collections.abc import Sequence

from ..alu.long_sums import FACTORS, ROWS, define_values
from ..ptx.model import Address, Instruction, Vector
from . import tiles
from .dispatch import push, submit
from .emit import Module, Writer
from .instruction_descriptors import NEGATE_LEFT, NEGATE_RIGHT, shape_of
from .leading_lane import address_at, at_lane, one_lane
from .lowering import Lowering, take_operands
from .phases import checker
from .products import Tile, multiply
from .refusals import refuse
from .tensor_memory import cells, check_defined, count_products, define, may_access
from .units import Kind, Operation
from .values import Value, constant, declared, i32, i64, vector

SOURCES = ("f16", "bf16", "tf32", "e4m3", "e5m2")
"""Types of factors, by their numbers in an `Operation`."""

_WIDEST, _TALLEST = 256, 128
_LEFT_ACROSS, _RIGHT_ACROSS, _FRESH, _LEFT_IN_TENSOR_MEMORY, _NEGATED = 1, 2, 4, 8, 16
_LANE_MASK_WORDS = 4
_WORDS = 8
"""Columns of tensor memory that a sum of 32 bytes takes."""


def lower_tensor_product(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tcgen05.mma`."""
    target, left, right, descriptor, *mask, keep = take_operands(instruction, 5, more=True)
    shape = shape_of(lowering.kernel, instruction)
    if shape is None or not isinstance(target, Address):
        raise lowering.unsupported(instruction, "its instruction descriptor")
    masked = [word for part in mask if isinstance(part, Vector) for word in part.items]
    if len(mask) > 1 or len(masked) != _LANE_MASK_WORDS * len(mask):
        raise lowering.unsupported(instruction, "its operands")
    writer = lowering.writer
    in_memory = isinstance(left, Address)
    flags = _LEFT_ACROSS * shape.left_across | _RIGHT_ACROSS * shape.right_across
    flags |= _LEFT_IN_TENSOR_MEMORY * in_memory
    sources = SOURCES.index(shape.left) | SOURCES.index(shape.right) << 8
    with one_lane(lowering, instruction) as lane:
        fresh = writer.invert(at_lane(lowering, keep, "i1", lane))
        fresh = writer.mul(writer.resize(fresh, "i32"), _FRESH)
        negated = _negation(writer, at_lane(lowering, descriptor, "i32", lane))
        for word in masked:
            left_out = writer.compare("ne", at_lane(lowering, word, "i32", lane), 0)
            with writer.when(left_out):
                refuse(writer, lowering.context, "masked")
        own = push(writer, lowering.context, lowering.fiber, Kind.PRODUCT,
                   lowering.site(instruction))  # fmt: skip
        if isinstance(left, Address):
            factor = writer.resize(address_at(lowering, left, "i32", lane), "i64")
        else:
            factor = at_lane(lowering, left, "i64", lane)
        fields = {
            "left": factor,
            "right": at_lane(lowering, right, "i64", lane),
            "target": address_at(lowering, target, "i32", lane),
            "sources": sources,
            "flags": writer.either(writer.either(fresh, negated), flags),
            "rows": shape.rows,
            "columns": shape.columns,
        }
        for name, value in fields.items():
            writer.write(own, Operation, name, value)
        writer.call("void", looker(lowering.module), lowering.context, own)
        submit(writer, lowering.context)


def _negation(writer: Writer, descriptor: Value) -> Value:
    """The flag of a product whose sign turns, which it does not if those of both factors do."""
    turned = (
        writer.resize(writer.compare("ne", writer.both(descriptor, bit), 0), "i32")
        for bit in (NEGATE_LEFT, NEGATE_RIGHT)
    )
    return writer.mul(writer.binary("xor", *turned), _NEGATED)


def lower_commit(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tcgen05.commit`: a barrier learns when what the warp has handed over is done."""
    (place,) = take_operands(instruction, 1)
    if not isinstance(place, Address):
        raise lowering.unsupported(instruction, "its operands")
    writer = lowering.writer
    with one_lane(lowering, instruction) as lane:
        own = push(writer, lowering.context, lowering.fiber, Kind.ARRIVE,
                   lowering.site(instruction))  # fmt: skip
        offset = address_at(lowering, place, "i32", lane)
        writer.write(own, Operation, "barrier", offset)
        writer.call("void", checker(lowering.module), lowering.context,
                    writer.resize(offset, "i64"), lowering.site(instruction))  # fmt: skip
        submit(writer, lowering.context)


def worker(module: Module, depth: int) -> str:
    """`product(context, operation)`: a product of factors with so many elements in a row."""
    names = [name for name in SOURCES if FACTORS[name].depth == depth]

    def build(writer: Writer, context: Value, operation: Value) -> None:
        job = _Job(writer, context, operation, names, depth)
        wide = writer.either(job.read_left(), job.read_right())
        job.multiply(wide)
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
    """One product as it is made."""

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
        self._left = Tile.reserve(writer, _TALLEST, depth)
        self._right = Tile.reserve(writer, _WIDEST, depth)
        spread = writer.compare("eq", self._rows, _TALLEST // 2)
        # Of 64 rows, 16 lie in every quarter of the lanes.
        self._lane_step = writer.select(spread, i32(2 * ROWS), i32(ROWS))

    def _has(self, flag: int) -> Value:
        return self._writer.compare("ne", self._writer.both(self._flags, flag), 0)

    def look_at_tensor_memory(self) -> None:
        """Check what the product finds there, unless another one before it works on it."""
        writer = self._writer
        target = writer.read(self._operation, Operation, "target")
        left = writer.resize(writer.read(self._operation, Operation, "left"), "i32")
        inside, fresh = self._has(_LEFT_IN_TENSOR_MEMORY), self._has(_FRESH)
        for address, columns, wanted in (
            (left, i64(_WORDS), inside),
            (target, self._columns, writer.invert(fresh)),
        ):
            # The product itself is the last of the queue.
            busy = count_products(writer, self._context, address, columns)
            own = writer.resize(writer.compare("eq", address, target), "i64")
            idle = writer.compare("ule", busy, own)
            with (
                writer.when(writer.both(idle, wanted)),
                writer.repeat(writer.shift_right(self._rows, 4)) as block,
            ):
                self._may_read(self._lanes(address, block), columns)

    def look(self) -> None:
        """Check the factors in shared memory, as the warp that hands the product over."""
        writer = self._writer
        number = writer.both(self._sources, 0xFF)
        outside = writer.invert(self._has(_LEFT_IN_TENSOR_MEMORY))
        for name in self._names:
            own = writer.compare("eq", number, SOURCES.index(name))
            with writer.when(writer.both(own, outside)):
                self._read_shared(
                    name, "left", self._rows, _LEFT_ACROSS, self._left, i64(1), self._rows
                )
            with writer.when(own):
                depth = i64(self._depth)
                self._read_shared(
                    name, "right", self._columns, _RIGHT_ACROSS, self._right, depth, i64(1)
                )

    def read_left(self) -> Value:
        """Fetch the left factor; whether f32 is too narrow."""
        writer = self._writer
        odd = writer.variable(constant("i1", 0))
        inside = self._has(_LEFT_IN_TENSOR_MEMORY)
        for name in self._names:
            number = writer.both(self._sources, 0xFF)
            with writer.when(writer.compare("eq", number, SOURCES.index(name))):
                with writer.when(inside):
                    self._read_tensor_memory(name)
                with writer.when(writer.invert(inside)):
                    self._read_shared(name, "left", self._rows, _LEFT_ACROSS, self._left,
                                      i64(1), self._rows)  # fmt: skip
                count = writer.mul(self._rows, self._depth)
                writer.store(self._left.find_exponents(writer, name, count), odd)
                with writer.when(self._has(_NEGATED)):
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
                self._read_shared(name, "right", self._columns, _RIGHT_ACROSS, self._right,
                                  i64(self._depth), i64(1))  # fmt: skip
                count = writer.mul(self._columns, self._depth)
                writer.store(self._right.find_exponents(writer, name, count), odd)
        return writer.load("i1", odd)

    def _read_shared(self, source: str, side: str, rows: Value, across: int, tile: Tile,
                     row_step: Value, step: Value) -> None:  # fmt: skip
        writer = self._writer
        descriptor = writer.read(self._operation, Operation, side)
        read = tiles.reader(writer.module, source)
        writer.call("void", read, self._context, descriptor, swizzle(writer, descriptor),
                    self._site, i64(0), rows, self._has(across), tile.values, row_step,
                    step)  # fmt: skip

    def _read_tensor_memory(self, source: str) -> None:
        writer = self._writer
        bits = FACTORS[source].bits
        each = 32 // bits
        definition = define_values(source, ROWS)
        address = writer.resize(writer.read(self._operation, Operation, "left"), "i32")
        row = "<16 x i32>"
        with writer.repeat(writer.shift_right(self._rows, 4)) as block:
            own = self._lanes(address, block)
            with writer.when(self._may_read(own, i64(_WORDS))):
                start = cells(writer, self._context, own)
                for word in range(_WORDS):
                    given = writer.load(row, writer.item(start, "i32", word * _TALLEST), 4)
                    for part in range(each):
                        raw = writer.resize(writer.shift_right(given, part * bits), f"i{bits}")
                        values = tiles.call_definition(writer, definition, [raw], ROWS)
                        position = writer.mul(self._rows, word * each + part)
                        position = writer.add(position, writer.mul(block, ROWS))
                        writer.store(values, writer.item(self._left.values, "i32", position), 4)

    def _lanes(self, address: Value, block: Value) -> Value:
        """The address of a block of 16 rows."""
        writer = self._writer
        lane = writer.mul(writer.resize(block, "i32"), 1 << 16)
        return writer.add(address, writer.binary("mul", lane, self._lane_step))

    def _may_read(self, address: Value, columns: Value) -> Value:
        writer = self._writer
        fine = may_access(writer, self._context, address, columns, self._site)
        with writer.when(fine):
            check_defined(writer, self._context, address, columns, self._site)
        return fine

    def multiply(self, wide: Value) -> None:
        """Add the product to the target, 16 rows at a time."""
        writer, context = self._writer, self._context
        address = writer.read(self._operation, Operation, "target")
        fresh = self._has(_FRESH)
        with writer.repeat(writer.shift_right(self._rows, 4)) as block:
            own = self._lanes(address, block)
            fine = may_access(writer, context, own, self._columns, self._site)
            with writer.when(fine):
                with writer.when(writer.invert(fresh)):
                    check_defined(writer, context, own, self._columns, self._site)
                define(writer, context, own, self._columns)
                first = writer.mul(block, ROWS)
                part = Tile(*(writer.item(place, "i32", first)
                              for place in (self._left.values, self._left.exponents)))  # fmt: skip
                multiply(writer, self._names[0], part, self._right, self._rows, wide,
                         cells(writer, context, own), self._columns, _TALLEST, fresh)  # fmt: skip


def swizzle(writer: Writer, descriptor: Value) -> Value:
    """Logarithm of the chunks in a row of an atom: modes 2, 4 and 6 are 128, 64 and 32 bytes."""
    mode = writer.shift_right(descriptor, 62)
    return writer.select(writer.compare("eq", mode, 0), i64(0), writer.sub(i64(4), mode))


def workers(module: Module) -> dict[int, str]:
    """The functions of all depths, by the number of the left factor's type."""
    by_depth = {depth: worker(module, depth) for depth in {FACTORS[n].depth for n in SOURCES}}
    return {k: by_depth[FACTORS[name].depth] for k, name in enumerate(SOURCES)}
