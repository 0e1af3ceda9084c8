"""Sums of floating-point products as the tensor cores form them for `mma.sync`.

K is taken in chunks, as long as an `Accumulation` says. Within a chunk every product and the
accumulator are aligned to the largest exponent among them, truncated to some fraction bits and
added as integers; the sum is truncated to f32, or rounded to nearest for f16. The accumulator of
the next chunk is that result.

This file takes any numbers, those of wide range in f64. Where all factors of a warp are common,
which they mostly are, `common_sums` does the same with less work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain

from . import rounding
from .accumulation import Accumulation
from .builder import Builder, Value
from .fragments import from_column, from_row
from .opcode import SCALARS

EXACT_TERMS = 8
"""So many products below 4 and a number below 2, with 25 fraction bits, add up in 32 bits."""
_NO_EXPONENT = -1000
"""Stands for the exponent of a zero, below that of every product."""


@dataclass(frozen=True, slots=True)
class _Multiplicand:
    """How the A and B elements of a type are held and computed with."""

    per_register: int
    element: str
    """The format in which every product is exact and stays in range."""
    smallest_exponent: int


_MULTIPLICANDS: Mapping[str, _Multiplicand] = {
    "f16": _Multiplicand(2, "float", -14),
    "bf16": _Multiplicand(2, "double", -126),
    "tf32": _Multiplicand(1, "double", -126),
}


@dataclass(frozen=True, slots=True)
class Accumulator:
    """How C and D elements are held."""

    smallest_exponent: int
    zero_exponent: int

    @staticmethod
    def of(model: Accumulation, target: str) -> Accumulator:
        """Of a type, as an architecture counts it."""
        if target == "f32":
            return Accumulator(-126, model.zero_exponent)
        return Accumulator(-14, model.half_zero_exponent)


@dataclass(frozen=True, slots=True)
class _Term:
    """One number per lane, with its exponent."""

    value: Value
    exponent: Value


class _FloatingTile:
    """Emits the products and sums of one floating-point `mma`."""

    def __init__(self, build: Builder, model: Accumulation, source: str, target: str) -> None:
        self.build = build
        self.fraction_bits = model.fraction_bits
        self.source = SCALARS["f32" if source == "tf32" else source]
        self.truncates = source == "tf32"
        self.multiplicand = _MULTIPLICANDS[source]
        self.accumulator = Accumulator.of(model, target)
        self.target = SCALARS[target]

    def elements(self, register: Value) -> list[_Term]:
        """The one or two elements in a register of A or B."""
        build, kind = self.build, self.multiplicand
        terms = []
        for value in self.values(register):
            exponent = self._exponent(value, kind.smallest_exponent, _NO_EXPONENT)
            terms.append(_Term(build.cast("fpext", value, kind.element), exponent))
        return terms

    def values(self, register: Value) -> list[Value]:
        """The same as f32."""
        build, per_register = self.build, self.multiplicand.per_register
        if self.truncates:
            register = build.binary("and", register, 0xFFFFE000)
        bits = 32 // per_register
        raw = (build.binary("lshr", register, index * bits) for index in range(per_register))
        return [rounding.widen(build, build.resize(word, bits), self.source) for word in raw]

    def _exponent(self, value: Value, smallest: int, of_zero: int) -> Value:
        build = self.build
        magnitude = build.binary("and", build.bits(value), 0x7FFFFFFF)
        exponent = build.resize(build.binary("lshr", magnitude, 23), 16)
        exponent = build.binary("sub", exponent, 127)
        exponent = build.intrinsic("smax", exponent, build.constant(smallest, exponent))
        return build.select(build.compare("eq", magnitude, 0), of_zero, exponent)

    def products(
        self, rows: Sequence[Sequence[_Term]], column: Sequence[_Term]
    ) -> list[list[_Term]]:
        """The products of two rows' registers with a column's for the four outputs of each lane."""
        build = self.build
        outputs: list[list[_Term]] = [[], [], [], []]
        for step in range(4):
            columns = [self._shuffled(column, from_column(step, odd)) for odd in range(2)]
            for half, row in enumerate(rows):
                left = self._shuffled(row, from_row(step))
                for odd, right in enumerate(columns):
                    outputs[2 * half + odd] += [
                        _Term(
                            build.binary("fmul", a.value, b.value),
                            build.binary("add", a.exponent, b.exponent),
                        )
                        for a, b in zip(left, right, strict=True)
                    ]
        return outputs

    def _shuffled(self, terms: Sequence[_Term], mask: Sequence[int]) -> list[_Term]:
        shuffle = self.build.shuffle
        return [
            _Term(
                shuffle(term.value, term.value, mask), shuffle(term.exponent, term.exponent, mask)
            )
            for term in terms
        ]

    def sum(self, accumulator: Value, products: Sequence[_Term]) -> Value:
        """The accumulator, as an f32, after one chunk of finite products."""
        build, kind = self.build, self.accumulator
        exponent = self._exponent(accumulator, kind.smallest_exponent, kind.zero_exponent)
        of_products = products[0].exponent
        for term in products[1:]:
            of_products = build.intrinsic("smax", of_products, term.exponent)
        largest = build.intrinsic("smax", exponent, of_products)
        lowest = 2 * self.multiplicand.smallest_exponent
        largest = build.intrinsic("smax", largest, build.constant(lowest, largest))
        largest = build.resize(largest, 32, signed=True)
        fraction = build.constant(self.fraction_bits, largest)
        scale = self._power_of_two(build.binary("sub", fraction, largest))
        wide = build.cast("fpext", accumulator, self.multiplicand.element)
        total = self._total([wide, *(term.value for term in products)], scale)
        result = self._rounded(scaled_back(build, total, largest, self.fraction_bits))
        # Without a product the accumulator is kept; as is one that is not finite.
        empty = build.compare("slt", of_products, _NO_EXPONENT // 2)
        magnitude = build.binary("and", build.bits(accumulator), 0x7FFFFFFF)
        special = build.compare("uge", magnitude, 0x7F800000)
        kept = build.select(build.binary("or", empty, special), accumulator, result)
        return build.binary("fadd", kept, 0.0)

    def _total(self, terms: Sequence[Value], scale: Value) -> Value:
        """The truncated terms' sum as a double."""
        build = self.build
        aligned = [
            build.cast("fptosi", build.binary("fmul", value, scale), "i32") for value in terms
        ]
        size = 1 + EXACT_TERMS
        parts = [added(build, aligned[k : k + size]) for k in range(0, len(aligned), size)]
        return added(build, [build.cast("sitofp", part, "double") for part in parts])

    def _power_of_two(self, exponent: Value) -> Value:
        build = self.build
        if self.multiplicand.element == "float":
            return build.bitcast(
                build.binary("shl", build.binary("add", exponent, 127), 23), "float"
            )
        biased = build.resize(build.binary("add", exponent, 1023), 64)
        return build.bitcast(build.binary("shl", biased, 52), "double")

    def _rounded(self, exact: Value) -> Value:
        """A double in the accumulator's format, as an f32."""
        build = self.build
        if self.target.bits == 16:
            return rounded_half(build, exact)
        truncated = rounding.double_to_float(build, exact, "rz")
        overflows = build.compare("oge", build.intrinsic("fabs", exact), 2.0**128)
        infinite = build.cast("fptrunc", exact, "float")
        return build.select(overflows, infinite, truncated)

    def special(self, value: Value) -> Value:
        """An infinity or NaN as an f32, zero for finite numbers."""
        build = self.build
        finite = build.compare("olt", build.intrinsic("fabs", value), float("inf"))
        return build.cast("fptrunc", build.select(finite, 0.0, value), "float")

    def special_sum(
        self, accumulators: Sequence[Value], products: Sequence[Sequence[_Term]]
    ) -> Value:
        """The infinity or NaN that a chain of chunks gives, zero where all is finite.

        Args:
            accumulators: What each chunk starts from, right while no term was special.
            products: The products of each chunk.
        """
        build = self.build
        total = build.constant(0.0, "float")
        for accumulator, terms in zip(accumulators, products, strict=True):
            untouched = build.compare("oeq", total, 0.0)
            start = build.select(untouched, self.special(accumulator), 0.0)
            for part in (start, *(self.special(term.value) for term in terms)):
                total = build.binary("fadd", total, part)
        return total


def added(build: Builder, terms: Sequence[Value]) -> Value:
    """The sum of integers or floats, one after the other."""
    operation = "add" if terms[0].element.startswith("i") else "fadd"
    return reduce(partial(build.binary, operation), terms)


def scaled_back(build: Builder, total: Value, largest: Value, fraction_bits: int) -> Value:
    """`total · 2^(largest − fraction bits)` as a double, from a double and an i32."""
    power = build.resize(build.binary("add", largest, 1023 - fraction_bits), 64)
    scale = build.bitcast(build.binary("shl", power, 52), "double")
    return build.binary("fmul", total, scale)


def rounded_half(build: Builder, exact: Value) -> Value:
    """A double rounded to nearest in f16, as an f32."""
    bits = rounding.narrow_double(build, exact, SCALARS["f16"])
    return rounding.widen(build, bits, SCALARS["f16"])


@dataclass(frozen=True, slots=True)
class Operands:
    """The registers of an `mma`."""

    rows: Sequence[Value]
    """Of A: for each of `columns` one of the upper and one of the lower rows."""
    columns: Sequence[Value]
    """Of B: 16 bytes of a column each."""
    accumulators: Sequence[Value]

    @staticmethod
    def of(build: Builder, depth: int, source: str, target: str) -> Operands:
        """The operands of the function that is built."""
        count = depth // (4 * _MULTIPLICANDS[source].per_register)
        counts = 2 * count, count, 4 if target == "f32" else 2
        return Operands(*([build.operand("b32") for _ in range(count)] for count in counts))

    def __iter__(self) -> Iterator[Value]:
        """All of them, in the order of the instruction."""
        return chain(self.rows, self.columns, self.accumulators)


def sums(
    build: Builder, model: Accumulation, operands: Operands, source: str, target: str
) -> list[Value]:
    """The registers of D for any A, B and C."""
    tile = _FloatingTile(build, model, source, target)
    starts = unpacked(build, operands.accumulators, target)
    results = _with_specials(tile, *_chain(tile, model.registers, operands, starts))
    return packed(build, results, target)


def unpacked(build: Builder, registers: Sequence[Value], target: str) -> list[Value]:
    """The four C elements of each lane as f32."""
    if target == "f32":
        return [build.floats(register) for register in registers]
    halves = [
        build.resize(build.binary("lshr", register, 16 * index), 16)
        for register in registers
        for index in range(2)
    ]
    return [rounding.widen(build, half, SCALARS["f16"]) for half in halves]


def packed(build: Builder, results: Sequence[Value], target: str) -> list[Value]:
    """The registers of D from its four elements of each lane as f32."""
    bits = [rounding.narrow(build, value, SCALARS[target]) for value in results]
    if target == "f32":
        return [
            rounding.canonical_nan(build, value, raw)
            for value, raw in zip(results, bits, strict=True)
        ]
    return [
        build.binary("or", build.resize(low, 32), build.binary("shl", build.resize(high, 32), 16))
        for low, high in (bits[:2], bits[2:])
    ]


def _chain(
    tile: _FloatingTile, registers: int, operands: Operands, starts: Sequence[Value]
) -> tuple[list[list[list[_Term]]], list[list[Value]]]:
    """The products of each chunk for each output, and the outputs before and after each chunk."""
    products, steps = [], [list(starts)]
    for first in range(0, len(operands.columns), registers):
        outputs: list[list[_Term]] = [[], [], [], []]
        for index, column in enumerate(operands.columns[first : first + registers], first):
            pair = [tile.elements(row) for row in operands.rows[2 * index : 2 * index + 2]]
            for output, terms in zip(
                outputs, tile.products(pair, tile.elements(column)), strict=True
            ):
                output += terms
        products.append(outputs)
        steps.append([tile.sum(start, outputs[i]) for i, start in enumerate(steps[-1])])
    return products, steps


def _with_specials(
    tile: _FloatingTile,
    products: Sequence[Sequence[Sequence[_Term]]],
    steps: Sequence[Sequence[Value]],
) -> list[Value]:
    """The outputs where infinities and NaN may be among the terms."""
    fixed = []
    for index, result in enumerate(steps[-1]):
        before = [step[index] for step in steps[:-1]]
        total = tile.special_sum(before, [chunk[index] for chunk in products])
        clean = tile.build.compare("oeq", total, 0.0)
        fixed.append(tile.build.select(clean, result, total))
    return fixed
