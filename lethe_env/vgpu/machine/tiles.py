"""Matrices in shared memory as tensor cores find them: by a descriptor of 64 bits.

A matrix is made of chunks of 16 bytes. Eight rows of chunks, one swizzle width apart, make an atom;
atoms repeat at two strides that the descriptor gives. Which bits of an address are exchanged
depends on the address itself, so a descriptor may begin within an atom.
"""

from __future__ import annotations

from ..alu.builder import Definition
from ..alu.long_sums import FACTORS, ROWS, define_exponents, define_values
from .chunks import Chunks
from .emit import Module, Writer
from .values import Value, constant, count_of, declared, i64, struct_type, vector

_FIELD = 0x3FFF
"""A descriptor gives addresses and strides in chunks, in 14 bits."""

WIDEST = 256
"""Rows of the largest factor."""


def reader(module: Module, source: str) -> str:
    """`read(context, home, descriptor, swizzle, site, first, rows, across, place, row_step, step)`.

    Element (row, k) goes to `place[row_step * row + step * k]` as an f32; rows are counted from
    `first`.

    Args:
        module: Where to write it.
        source: Type of the elements, as in `long_sums.FACTORS`. `home` is the context of the block
            whose memory is read; `swizzle` is the logarithm of the chunks that make a row of an
            atom; `across` tells that a chunk holds neighbouring rows, not neighbouring elements
            of a row.
    """
    factor = FACTORS[source]
    each = 128 // factor.bits
    define = define_values(source, each)

    def build(writer: Writer, context: Value, home: Value, descriptor: Value, swizzle: Value,
              site: Value, first: Value, rows: Value, across: Value, place: Value,
              row_step: Value, step: Value) -> None:  # fmt: skip
        chunks = Chunks(writer, context, site, home)
        atom = _Atom(writer, descriptor, swizzle, across)
        outer = writer.select(across, i64(factor.depth), rows)
        width = each.bit_length() - 1
        inner = writer.select(across, writer.shift_right(rows, width), i64(2))
        outer_first = writer.select(across, i64(0), first)
        inner_first = writer.select(across, writer.shift_right(first, width), i64(0))
        outer_step = writer.select(across, step, row_step)
        along = writer.select(across, row_step, step)
        with writer.repeat(outer) as line, writer.repeat(inner) as column:
            offset = atom.offset(writer.add(line, outer_first), writer.add(column, inner_first))
            raw = chunks.read(offset, vector(f"i{factor.bits}", each))
            values = call_definition(writer, define, [raw], each)
            position = writer.mul(line, outer_step)
            along_chunk = writer.mul(writer.mul(column, each), along)
            spread(writer, values, place, writer.add(position, along_chunk), along)
        writer.give()

    parameters = declared(
        "ptr context, ptr home, i64 descriptor, i64 swizzle, i32 site, i64 first, i64 rows, i1 "
        "across, ptr place, i64 row_step, i64 step"
    )
    return module.function(f"tile.read.{source}", "void", parameters, build)


def spread(writer: Writer, values: Value, place: Value, start: Value, step: Value) -> None:
    """Store a vector's elements a step apart."""
    count = count_of(values.type)
    tight = writer.compare("eq", step, 1)
    with writer.when(tight):
        writer.store(values, writer.item(place, "i32", start), 4)
    with writer.when(writer.invert(tight)):
        for index in range(count):
            position = writer.add(start, writer.mul(step, index))
            writer.store(writer.extract(values, index), writer.item(place, "i32", position), 4)


class _Atom:
    """Where chunks lie by a descriptor."""

    def __init__(self, writer: Writer, descriptor: Value, swizzle: Value, across: Value) -> None:
        self._writer, self._swizzle = writer, swizzle
        start, leading, stride = (
            writer.shift_left(writer.both(writer.shift_right(descriptor, at), _FIELD), 4)
            for at in (0, 16, 32)
        )
        # Without a swizzle, atoms of neighbouring rows lie one stride apart, those of
        # neighbouring columns the other; where chunks go across, these are exchanged.
        plain = writer.both(writer.compare("eq", swizzle, 0), across)
        self._start = start
        self._outer = writer.select(plain, leading, stride)
        self._far = writer.select(plain, stride, leading)
        self._chunks = writer.sub(writer.binary("shl", i64(1), swizzle), 1)

    def offset(self, line: Value, column: Value) -> Value:
        """Of a chunk: by its line, and its position in the line."""
        writer = self._writer
        within = writer.both(line, 7)
        parts = (
            writer.mul(writer.shift_right(line, 3), self._outer),
            writer.shift_left(writer.binary("shl", within, self._swizzle), 4),
            writer.shift_left(writer.both(column, self._chunks), 4),
            writer.mul(writer.binary("lshr", column, self._swizzle), self._far),
        )
        total = self._start
        for part in parts:
            total = writer.add(total, part)
        turned = writer.both(writer.shift_right(total, 7), self._chunks)
        return writer.binary("xor", total, writer.shift_left(turned, 4))


def exponents(module: Module, source: str) -> str:
    """`exponents(values, place, count)`: of so many values; whether f32 is too narrow, `i1`."""
    define = define_exponents(source)
    row = vector("i32", ROWS)

    def build(writer: Writer, values: Value, place: Value, count: Value) -> None:
        odd = writer.variable(constant(vector("i1", ROWS), 0))
        with writer.repeat(writer.shift_right(count, ROWS.bit_length() - 1)) as index:
            given = writer.load(row, writer.item(values, row, index), 4)
            types = (row, vector("i1", ROWS))
            found = call_definition(writer, define, [given], ROWS)
            exponent, uncommon = writer.unpack(found, types)
            writer.store(exponent, writer.item(place, row, index), 4)
            writer.store(writer.either(writer.load(uncommon.type, odd), uncommon), odd)
        writer.give(writer.any(writer.load(vector("i1", ROWS), odd)))

    parameters = declared("ptr values, ptr place, i64 count")
    kind = source.partition(".")[0]
    return module.function(f"tile.exponents.{kind}", "i1", parameters, build)


def call_definition(
    writer: Writer, definition: Definition, arguments: list[Value], count: int
) -> Value:
    """Call a function of the arithmetic room over vectors of `count` elements."""
    writer.module.add_text(definition.name, definition.ir)
    results = [_vector_of(type_, count) for type_ in definition.result_types]
    return writer.call(struct_type(results), f'"{definition.name}"', *arguments)


def _vector_of(register: str, count: int) -> str:
    return vector("i1" if register == "pred" else f"i{register[1:]}", count)
