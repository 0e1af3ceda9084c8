"""Sums of products as tensor cores form them, in f32, where all factors are common.

Common factors are zeros and finite numbers that are neither so small nor so large that f32 could
not hold what is computed with them; the accumulator may be anything. What results is what
`tensor_sums` says, with less work: an exponent is kept in 16 bits where the upper half of an f32
has it, above seven other bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import processor
from .accumulation import Accumulation
from .builder import Builder, Value
from .fragments import LANES, from_column, from_row
from .opcode import SCALARS
from .tensor_sums import EXACT_TERMS, Accumulator, added, rounded_half, scaled_back

_ONE = 1 << 7
"""The exponent 1 as it is kept."""
_BIAS = 127
_SPECIAL = 255 * _ONE
"""The exponent of an f32 that is not finite."""
_F32_BITS = 24
_WIDE_LANES = 16
_TOWARDS_ZERO = 11
"""How AVX-512 spells a rounding mode: cut off, and raise nothing."""


@dataclass(frozen=True, slots=True)
class _Format:
    """How the elements of A and B are held."""

    per_register: int
    bias: int
    smallest_exponent: int
    """Of a normal number, or of a common one."""
    limit: int
    """The exponents of common elements are below."""


_FORMATS: Mapping[str, _Format] = {
    "f16": _Format(2, 15, -14, 16),
    "bf16": _Format(2, _BIAS, -50, 60),
    "tf32": _Format(1, _BIAS, -50, 60),
}
"""A product is at least 2^-100, so the last of its 25 fraction bits is normal, and below 2^120."""

_OF_ZERO = {"left": -64 * _ONE, "right": -192 * _ONE}
"""Stand for the exponents of zeros. Those of A are biased by 127, so they are 77 to 186, and those
of B are not: with either of these, a sum is below every product's, which is 27 at least."""


@dataclass(frozen=True, slots=True)
class _Term:
    """One number per lane, with its exponent as it is kept."""

    value: Value
    exponent: Value


class CommonTile:
    """Emits one floating-point `mma` of common factors."""

    def __init__(self, build: Builder, model: Accumulation, source: str, target: str) -> None:
        self._build = build
        self._model = model
        self._source = source
        self._format = _FORMATS[source]
        self._accumulator = Accumulator.of(model, target)
        self._target = SCALARS[target]

    def uncommon(self, registers: Sequence[Value]) -> Value:
        """Lanes that hold an element of A or B that is not common: mostly none."""
        build = self._build
        mask = build.constant(0, "i1")
        for register in registers:
            for half in self._halves(register):
                mask = build.binary("or", mask, self._is_uncommon(register, half))
        return mask

    def _is_uncommon(self, register: Value, half: Value) -> Value:
        build, form = self._build, self._format
        magnitude = build.binary("and", half, 0x7FFF)
        if self._source == "f16":
            return build.compare("uge", magnitude, 0x7C00)
        low, high = (_ONE * (exponent + _BIAS) for exponent in (form.smallest_exponent, form.limit))
        unusual = build.compare("uge", build.binary("sub", magnitude, low), high - low)
        whole = build.binary("and", register, 0x7FFFE000) if self._source == "tf32" else magnitude
        return build.binary("and", unusual, build.compare("ne", whole, 0))

    def multiply(
        self, rows: Sequence[Value], columns: Sequence[Value], starts: Sequence[Value]
    ) -> list[Value]:
        """The four outputs of each lane as f32, from the registers of A and B and from C as f32."""
        results = list(starts)
        count = self._model.registers
        for first in range(0, len(columns), count):
            column = self._taken(columns[first : first + count], "right")
            upper, lower = (
                self._taken(rows[2 * first + half : 2 * (first + count) : 2], "left")
                for half in range(2)
            )
            for odd in range(2):
                right = [self._shuffled(b, from_column(step, odd)) for step, b in column]
                for half, row in enumerate((upper, lower)):
                    left = [self._shuffled(a, from_row(step)) for step, a in row]
                    index = 2 * half + odd
                    results[index] = self._sum(results[index], list(zip(left, right, strict=True)))
        # A kept accumulator of -0 becomes +0.
        return [self._build.binary("fadd", result, 0.0) for result in results]

    def _taken(self, registers: Sequence[Value], side: str) -> list[tuple[int, _Term]]:
        """The elements of a row or column in order, with the step of the lane that holds each."""
        elements = [self._elements(register, side) for register in registers]
        return [(step, term) for terms in elements for step in range(4) for term in terms]

    def _halves(self, register: Value) -> list[Value]:
        """The elements in a register as 16 bits, of TF32 the upper ones."""
        parts = [0, 1][-self._format.per_register :]
        return [self._half(register, part) for part in parts]

    def _half(self, register: Value, part: int) -> Value:
        halves = self._build.bitcast(register, "i16")
        return self._build.shuffle(halves, halves, range(part, 2 * LANES, 2))

    def _elements(self, register: Value, side: str) -> list[_Term]:
        halves = self._halves(register)
        values = self._values(register, halves)
        return [
            _Term(value, self._exponent(half, side))
            for value, half in zip(values, halves, strict=True)
        ]

    def _values(self, register: Value, halves: Sequence[Value]) -> list[Value]:
        build = self._build
        if self._source == "f16":
            return [build.cast("fpext", build.floats(half), "float") for half in halves]
        if self._source == "tf32":
            return [build.floats(build.binary("and", register, 0xFFFFE000))]
        low, high = build.binary("shl", register, 16), build.binary("and", register, 0xFFFF0000)
        return [build.floats(low), build.floats(high)]

    def _exponent(self, half: Value, side: str) -> Value:
        """Biased by 127 on the left side, not at all on the right one."""
        build, form = self._build, self._format
        if self._source == "f16":
            exponent = build.binary("lshr", build.binary("and", half, 0x7C00), 3)
            exponent = build.intrinsic("smax", exponent, build.constant(_ONE, exponent))
            zero = build.compare("eq", build.binary("and", half, 0x7FFF), 0)
        else:
            exponent = build.binary("and", half, 0x7F80)
            zero = build.compare("eq", exponent, 0)
        bias = _BIAS if side == "left" else 0
        exponent = build.binary("add", exponent, _ONE * (bias - form.bias))
        return build.select(zero, _OF_ZERO[side], exponent)

    def _shuffled(self, term: _Term, lanes: Sequence[int]) -> _Term:
        shuffle = self._build.shuffle
        return _Term(
            shuffle(term.value, term.value, lanes), shuffle(term.exponent, term.exponent, lanes)
        )

    def _sum(self, accumulator: Value, factors: Sequence[tuple[_Term, _Term]]) -> Value:
        """The accumulator, as an f32, after one chunk."""
        build = self._build
        exponents = [build.binary("add", a.exponent, b.exponent) for a, b in factors]
        of_products = exponents[0]
        for exponent in exponents[1:]:
            of_products = build.intrinsic("smax", of_products, exponent)
        own = build.binary("and", self._half(build.bits(accumulator), 1), _SPECIAL)
        largest = build.intrinsic("smax", self._clamped(own, accumulator), of_products)
        raised = build.binary("shl", build.resize(largest, 32), 16)
        scale = build.binary(
            "sub", build.constant((2 * _BIAS + self._model.fraction_bits) << 23, raised), raised
        )
        scale = build.floats(scale)
        start = self._cut(build.binary("fmul", accumulator, scale))
        products = [
            self._cut(build.binary("fmul", build.binary("fmul", a.value, b.value), scale))
            for a, b in factors
        ]
        total = _Total.of(build, start, products)
        # Without a product the accumulator is kept; as is one that is not finite.
        empty = build.compare(
            "slt", of_products, _ONE * (_BIAS + 2 * self._format.smallest_exponent)
        )
        kept = build.binary("or", empty, build.compare("eq", own, _SPECIAL))
        return build.select(kept, accumulator, self._rounded(total, raised))

    def _clamped(self, exponent: Value, accumulator: Value) -> Value:
        """The exponent of an accumulator, where it may be larger than that of every product."""
        build, kind = self._build, self._accumulator
        if kind.smallest_exponent < 2 * self._format.smallest_exponent:
            return exponent
        smallest = build.constant(_ONE * (_BIAS + kind.smallest_exponent), exponent)
        exponent = build.intrinsic("smax", exponent, smallest)
        zero = build.compare("oeq", accumulator, 0.0)
        return build.select(zero, _ONE * (_BIAS + kind.zero_exponent), exponent)

    def _cut(self, value: Value) -> Value:
        return self._build.cast("fptosi", value, "i32")

    def _rounded(self, total: _Total, raised: Value) -> Value:
        """`total · 2^(largest − fraction bits)` in the accumulator's format, as an f32.

        Args:
            total: A sum of cut products.
            raised: The power of two whose exponent is the largest, as the bits of an f32.
        """
        build, fraction_bits = self._build, self._model.fraction_bits
        if self._target.bits == 16:
            largest = build.binary("sub", build.binary("lshr", raised, 23), _BIAS)
            exact = scaled_back(build, total.exact(build), largest, fraction_bits)
            return rounded_half(build, exact)
        scale = build.floats(build.binary("sub", raised, fraction_bits << 23))
        return build.binary("fmul", total.truncated(build), scale)


@dataclass(frozen=True, slots=True)
class _Total:
    """A sum of i32 that may have one bit more than they."""

    low: Value
    """Its lower 32 bits."""
    parts: tuple[Value, ...]
    """What it was added up from: one that fits into 32 bits, or two such."""

    @staticmethod
    def of(build: Builder, start: Value, products: Sequence[Value]) -> _Total:
        """The sum of an accumulator and up to 16 products, with 25 fraction bits at most.

        Sixteen times (2 - 2^-10)² is still below 2^31 of these units: the products alone fit.
        """
        if len(products) <= EXACT_TERMS:
            total = added(build, [start, *products])
            return _Total(total, (total,))
        total = added(build, products)
        return _Total(build.binary("add", total, start), (total, start))

    def exact(self, build: Builder) -> Value:
        """As a double."""
        return added(build, [build.cast("sitofp", part, "double") for part in self.parts])

    def truncated(self, build: Builder) -> Value:
        """As an f32, rounded towards zero."""
        if len(self.parts) == 1 and processor.has("avx512f"):
            return _towards_zero(build, self.low, "sitofp")
        sign = build.binary("ashr", self._signs(build), 31)
        magnitude = build.binary("sub", build.binary("xor", self.low, sign), sign)
        if processor.has("avx512f"):
            unsigned = _towards_zero(build, magnitude, "uitofp")
        else:
            unsigned = build.cast("uitofp", _leading_bits(build, magnitude), "float")
        sign = build.binary("and", sign, -(1 << 31))
        return build.floats(build.binary("or", build.bits(unsigned), sign))

    def _signs(self, build: Builder) -> Value:
        """Its sign in the uppermost bit: that of two parts, or of the sum where these differ."""
        if len(self.parts) == 1:
            return self.low
        first, second = self.parts
        either = build.binary("and", build.binary("or", first, second), self.low)
        return build.binary("or", build.binary("and", first, second), either)


def _towards_zero(build: Builder, integer: Value, conversion: str) -> Value:
    """An i32 as an f32, by AVX-512."""
    parts = []
    for start in range(0, LANES, _WIDE_LANES):
        part = build.shuffle(integer, integer, range(start, start + _WIDE_LANES))
        name = f"@llvm.x86.avx512.{conversion}.round.v16f32.v16i32"
        call = f"call <{_WIDE_LANES} x float> {name}({part.typed}, i32 {_TOWARDS_ZERO})"
        parts.append(build.emit(call, "float", _WIDE_LANES))
    return build.shuffle(*parts, range(LANES))


def _leading_bits(build: Builder, magnitude: Value) -> Value:
    """An unsigned i32 cut to the bits that an f32 holds."""
    zeros = build.intrinsic("ctlz", magnitude, flag=False)
    surplus = build.binary("sub", build.constant(32 - _F32_BITS, zeros), zeros)
    surplus = build.intrinsic("smax", surplus, build.constant(0, surplus))
    kept = build.binary("shl", build.constant(-1, magnitude), surplus)
    return build.binary("and", magnitude, kept)
