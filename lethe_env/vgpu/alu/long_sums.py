"""Sums of floating-point products as the tensor cores of sm_90 and sm_100 form them.

32 bytes of a row of A and a column of B make one sum. All its products and the accumulator are
aligned to the largest exponent among them, truncated to 25 fraction bits and added as integers;
the sum is truncated to f32, or rounded to f16. Zeros count with the exponent -133, or -21. The
8-bit floats of sm_90 are truncated to 13 bits instead, and so are their sums. This is MMA-Sim's
model of `wgmma` and `tcgen05.mma`, which its authors validated on hardware. Integers wrap.

A vector holds one output of 16 rows. Factors come with their exponents, which many sums share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from . import rounding
from .builder import Builder, Definition, Value
from .opcode import SCALARS

ROWS = 16
"""Outputs of a vector."""

COMMON_EXPONENTS = (-50, 60)
"""Elements in this range, and zeros, have products and sums that f32 holds."""

_ZERO_EXPONENT, _HALF_ZERO_EXPONENT = -133, -21
_NO_EXPONENT = -1000
"""Stands for the exponent of a zero factor, below that of every product."""

_EXACT_TERMS = 16
"""Products below 4 with 25 fraction bits that a 32-bit integer can add up."""


@dataclass(frozen=True, slots=True)
class Factor:
    """How elements of A and B are held, and the widths of their sums."""

    bits: int
    smallest_exponent: int
    fraction_bits: int = 25
    """Of aligned products."""
    kept_bits: int = 24
    """Of a sum, its first among them."""
    integer: bool = False

    @property
    def depth(self) -> int:
        """Products of one sum: 32 bytes of elements."""
        return 256 // self.bits


FACTORS: Mapping[str, Factor] = {
    "f16": Factor(16, -14),
    "bf16": Factor(16, -126),
    "tf32": Factor(32, -126),
    "e5m2": Factor(8, -14),
    "e4m3": Factor(8, -6),
    "e5m2.short": Factor(8, -14, 13, 14),
    "e4m3.short": Factor(8, -6, 13, 14),
    "f16.half": Factor(16, -14),
    "s8": Factor(8, 0, 0, 32, integer=True),
    "u8": Factor(8, 0, 0, 32, integer=True),
}
"""By type; `.short` is how sm_90 adds 8-bit floats, `.half` rounds sums to f16."""


@cache
def define_values(source: str, count: int) -> Definition:
    """The function from so many elements, as integers, to their bits as f32."""
    factor = FACTORS[source]
    build = Builder(count)
    raw = build.operand(f"b{factor.bits}")
    kind = source.partition(".")[0]
    if kind == "tf32":
        value = build.floats(build.binary("and", raw, 0xFFFFE000))
    elif kind in ("f16", "bf16"):
        value = rounding.widen(build, raw, SCALARS[kind])
    elif factor.integer:
        value = build.resize(raw, 32, signed=kind == "s8")
    else:
        value = _eight_bits(build, raw, kind)
    build.result(build.bits(value))
    return build.finish(f"alu.long.values.{kind}.{count}")


def _eight_bits(build: Builder, raw: Value, kind: str) -> Value:
    wide = build.resize(raw, 16)
    if kind == "e5m2":
        half = build.bitcast(build.binary("shl", wide, 8), "half")
        return build.cast("fpext", half, "float")
    magnitude = build.binary("and", wide, 0x7F)
    sign = build.binary("shl", build.binary("and", wide, 0x80), 8)
    bits = build.binary("or", build.binary("shl", magnitude, 7), sign)
    value = build.cast("fpext", build.bitcast(bits, "half"), "float")
    scaled = build.binary("fmul", value, 256.0)
    return build.select(build.compare("eq", magnitude, 0x7F), float("nan"), scaled)


@cache
def define_exponents(source: str) -> Definition:
    """The function from factors as f32 to their exponents and to whether f32 is too narrow."""
    build = Builder(ROWS)
    value = build.operand("b32")
    magnitude = build.binary("and", value, 0x7FFFFFFF)
    low, high = ((bound + 127) << 23 for bound in COMMON_EXPONENTS)
    usual = build.compare("ult", build.binary("sub", magnitude, low), high - low)
    usual = build.binary("or", usual, build.compare("eq", magnitude, 0))
    exponent = _exponent(build, value, FACTORS[source].smallest_exponent, _NO_EXPONENT)
    build.result(exponent)
    build.result(build.binary("xor", usual, -1))
    return build.finish(f"alu.long.exponents.{source}")


def _exponent(build: Builder, bits: Value, smallest: int, of_zero: int) -> Value:
    magnitude = build.binary("and", bits, 0x7FFFFFFF)
    exponent = build.binary("sub", build.binary("lshr", magnitude, 23), 127)
    exponent = build.intrinsic("smax", exponent, build.constant(smallest, exponent))
    return build.select(build.compare("eq", magnitude, 0), of_zero, exponent)


def sum_name(source: str) -> str:
    """Sums that agree in depth and widths are one function."""
    factor = FACTORS[source]
    if factor.integer:
        return "integer"
    half = ".half" if source.endswith(".half") else ""
    return f"{factor.depth}.{factor.fraction_bits}{half}"


@cache
def define_sum(source: str, wide: bool) -> Definition:
    """The function of one sum.

    Its operands are the accumulator, and of every product the left factor and its exponent, the
    right factor and its exponent; its result is the new accumulator.

    Args:
        source: Type of the factors.
        wide: Whether factors may be too large or small for f32 to hold products, or not finite.
    """
    factor = FACTORS[source]
    if factor.integer:
        return _integer_sum(factor)
    half = source.endswith(".half")
    smallest, zero = (-14, _HALF_ZERO_EXPONENT) if half else (-126, _ZERO_EXPONENT)
    build = Builder(ROWS)
    start = build.operand("b32")
    element = "double" if wide else "float"
    products, exponents = [], []
    for _ in range(factor.depth):
        left, left_exponent, right, right_exponent = (build.operand("b32") for _ in range(4))
        values = (build.cast("fpext", build.floats(x), element) for x in (left, right))
        products.append(build.binary("fmul", *values))
        exponents.append(build.binary("add", left_exponent, right_exponent))
    of_products = _largest(build, exponents)
    largest = build.intrinsic("smax", of_products, _exponent(build, start, smallest, zero))
    lowest = zero if wide or half else 2 * COMMON_EXPONENTS[0]
    largest = build.intrinsic("smax", largest, build.constant(lowest, largest))
    accumulator = build.floats(start)
    total = _total(build, accumulator, products, largest, factor.fraction_bits)
    if half:
        narrow = rounding.narrow_double(build, total, SCALARS["f16"])
        result = rounding.widen(build, narrow, SCALARS["f16"])
    else:
        result = _truncated(build, total, factor.kept_bits, wide)
    # Without a product the accumulator is kept; as is one that is not finite.
    empty = build.compare("slt", of_products, _NO_EXPONENT // 2)
    special = build.compare("uge", build.binary("and", start, 0x7FFFFFFF), 0x7F800000)
    if factor.kept_bits < 24:
        empty = build.constant(0, "i1")
    result = build.select(build.binary("or", empty, special), accumulator, result)
    result = build.binary("fadd", result, 0.0)
    if wide:
        result = _with_specials(build, accumulator, products, result)
    build.result(rounding.canonical_nan(build, result, build.bits(result)))
    return build.finish(f"alu.long.sum.{sum_name(source)}.{'wide' if wide else 'usual'}")


def _integer_sum(factor: Factor) -> Definition:
    """Products added up in 32 bits, wrapping."""
    build = Builder(ROWS)
    total = build.operand("b32")
    for _ in range(factor.depth):
        left, _, right, _ = (build.operand("b32") for _ in range(4))
        total = build.binary("add", total, build.binary("mul", left, right))
    build.result(total)
    return build.finish("alu.long.sum.integer")


def _largest(build: Builder, values: Sequence[Value]) -> Value:
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [build.intrinsic("smax", a, b) for a, b in pairs]
    return values[0]


def _total(
    build: Builder, accumulator: Value, products: Sequence[Value], largest: Value, fraction: int
) -> Value:
    """The truncated terms' sum as a double."""
    element = products[0].element
    scale = _power_of_two(build, build.binary("sub", build.constant(fraction, largest), largest),
                          element)  # fmt: skip
    integer = "i64" if element == "double" else "i32"

    def aligned(value: Value) -> Value:
        return build.cast("fptosi", build.binary("fmul", value, scale), integer)

    total = build.cast("sitofp", aligned(build.cast("fpext", accumulator, element)), "double")
    for first in range(0, len(products), _EXACT_TERMS):
        part = aligned(products[first])
        for product in products[first + 1 : first + _EXACT_TERMS]:
            part = build.binary("add", part, aligned(product))
        total = build.binary("fadd", total, build.cast("sitofp", part, "double"))
    back = _power_of_two(build, build.binary("sub", largest, fraction), "double")
    return build.binary("fmul", total, back)


def _power_of_two(build: Builder, exponent: Value, element: str) -> Value:
    if element == "float":
        biased = build.binary("add", exponent, 127)
        return build.bitcast(build.binary("shl", biased, 23), "float")
    biased = build.resize(build.binary("add", exponent, 1023), 64)
    return build.bitcast(build.binary("shl", biased, 52), "double")


def _truncated(build: Builder, exact: Value, kept_bits: int, wide: bool) -> Value:
    """A double cut to an f32 with so many bits, towards zero; beyond f32, an infinity."""
    if not wide:
        # Its last fraction bit is a normal f32, so that nothing is subnormal.
        mask = -(1 << (53 - kept_bits))
        bits = build.binary("and", build.bits(exact), mask)
        return build.cast("fptrunc", build.floats(bits), "float")
    truncated = rounding.double_to_float(build, exact, "rz")
    overflows = build.compare("oge", build.intrinsic("fabs", exact), 2.0**128)
    infinite = build.cast("fptrunc", exact, "float")
    return build.select(overflows, infinite, _shortened(build, truncated, kept_bits))


def _shortened(build: Builder, value: Value, kept_bits: int) -> Value:
    bits = build.binary("and", build.bits(value), -(1 << (24 - kept_bits)))
    return build.floats(bits)


def _with_specials(
    build: Builder, accumulator: Value, products: Sequence[Value], result: Value
) -> Value:
    """The result, or the infinity or NaN that the terms add up to."""
    total = build.constant(0.0, "float")
    for term in (accumulator, *products):
        finite = build.compare("olt", build.intrinsic("fabs", term), float("inf"))
        special = build.cast("fptrunc", build.select(finite, 0.0, term), "float")
        total = build.binary("fadd", total, special)
    return build.select(build.compare("oeq", total, 0.0), result, total)
