"""Between floating-point formats: widening, rounding in every mode, flushing, saturation.

Narrow formats are computed in a wider one. Where that would round twice the wide value is rounded
to odd first: truncated, with its last bit set if anything was lost, which a later rounding to at
least two bits fewer cannot tell from the exact value.
"""

from __future__ import annotations

from .builder import Builder, Value, bits_of
from .opcode import Scalar

SMALLEST_NORMAL_BITS = {"half": 0x0400, "float": 0x00800000, "double": 0x0010000000000000}
CANONICAL_NAN = {16: 0x7FFF, 32: 0x7FFFFFFF, 64: 0x7FF8000000000000}
_SIGN = {16: 0x8000, 32: 0x80000000, 64: 0x8000000000000000}


def sign_mask(bits: int) -> int:
    """The sign bit of a floating-point format of this width."""
    return _SIGN[bits]


def magnitude_mask(bits: int) -> int:
    """Every bit but the sign."""
    return _SIGN[bits] - 1


def widen(build: Builder, raw: Value, scalar: Scalar) -> Value:
    """Register bits as a float in which the format is exact: f16 and bf16 become f32."""
    if scalar.kind == "bf":
        shifted = build.binary("shl", build.resize(raw, 32), 16)
        return build.bitcast(shifted, "float")
    value = build.floats(raw)
    return build.cast("fpext", value, "float") if scalar.bits == 16 else value


def narrow(build: Builder, value: Value, scalar: Scalar) -> Value:
    """An f32 (f64 for f64) rounded to nearest even into a format, as its bits.

    A NaN becomes the canonical one where the format is narrower than the value.
    """
    if scalar.bits >= value.bits:
        return build.bits(value)
    if scalar.kind == "f":
        rounded = build.bits(build.cast("fptrunc", value, "half"))
    else:
        bits = build.bits(value)
        odd = build.binary("and", build.binary("lshr", bits, 16), 1)
        biased = build.binary("add", build.binary("add", bits, odd), 0x7FFF)
        rounded = build.resize(build.binary("lshr", biased, 16), 16)
    return canonical_nan(build, value, rounded)


def canonical_nan(build: Builder, value: Value, bits: Value) -> Value:
    """The bits, with the canonical NaN wherever the value is a NaN."""
    unordered = build.compare("uno", value, value)
    return build.select(unordered, CANONICAL_NAN[bits.bits], bits)


def flush_bits(build: Builder, bits: Value) -> Value:
    """Subnormals of an IEEE format given by its bits become zeros of the same sign."""
    element = {16: "half", 32: "float", 64: "double"}[bits.bits]
    magnitude = build.binary("and", bits, magnitude_mask(bits.bits))
    small = build.compare("ult", magnitude, SMALLEST_NORMAL_BITS[element])
    return build.select(small, build.binary("and", bits, sign_mask(bits.bits)), bits)


def flush(build: Builder, value: Value) -> Value:
    """`flush_bits` of a float."""
    return build.bitcast(flush_bits(build, build.bits(value)), value.element)


def saturate(build: Builder, value: Value) -> Value:
    """Clamped to [+0, 1]; a NaN becomes +0."""
    positive = build.intrinsic("maximumnum", value, build.constant(0.0, value))
    return build.intrinsic("minimumnum", positive, build.constant(1.0, value))


def clamp_negative(build: Builder, value: Value) -> Value:
    """`.relu`: negative values become +0, a NaN stays."""
    negative = build.compare("ole", value, 0.0)
    return build.select(negative, 0.0, value)


def step(build: Builder, bits: Value, error: Value, mode: str) -> Value:
    """From the bits of the nearest number those of the number in another direction.

    Args:
        build: Where to write.
        bits: The number rounded to nearest.
        error: A float with the sign of the exact value minus the rounded one; zero where that is
            exact, a NaN where it is not finite.
        mode: `rz`, `rm`, `rp`, or `odd`: toward zero with the last bit set if inexact.
    """
    below = build.compare("olt", error, 0.0)
    above = build.compare("ogt", error, 0.0)
    negative = build.compare("slt", bits, 0)
    if mode in ("rz", "odd"):
        too_large = build.select(negative, above, below)
        bits = build.binary("sub", bits, build.resize(too_large, bits.bits))
        if mode == "rz":
            return bits
        inexact = build.binary("or", below, above)
        return build.binary("or", bits, build.resize(inexact, bits.bits))
    moves = below if mode == "rm" else above
    ones = build.constant(1, bits), build.constant(-1, bits)
    distance = build.select(negative, *(ones if mode == "rm" else ones[::-1]))
    return build.select(moves, build.binary("add", bits, distance), bits)


def step_float(build: Builder, value: Value, error: Value, mode: str) -> Value:
    """`step` of a float."""
    return build.bitcast(step(build, build.bits(value), error, mode), value.element)


def add_to_odd(build: Builder, a: Value, b: Value) -> Value:
    """The sum of two doubles rounded to odd."""
    total = build.binary("fadd", a, b)
    b_part = build.binary("fsub", total, a)
    a_part = build.binary("fsub", total, b_part)
    a_error, b_error = build.binary("fsub", a, a_part), build.binary("fsub", b, b_part)
    return step_float(build, total, build.binary("fadd", a_error, b_error), "odd")


def signed_zero(build: Builder, a: Value, b: Value, total: Value, mode: str) -> Value:
    """An exact zero sum is −0 in mode `rm` unless both terms are +0."""
    if mode != "rm":
        return total
    signs = build.binary("or", build.bits(a), build.bits(b))
    zero = build.compare("oeq", total, 0.0)
    return build.select(build.binary("and", zero, build.compare("slt", signs, 0)), -0.0, total)


def double_to_float(build: Builder, value: Value, mode: str = "rn") -> Value:
    """A double as an f32, rounded by `rn`, `rz`, `rm`, `rp` or `odd`."""
    nearest = build.cast("fptrunc", value, "float")
    if mode == "rn":
        return nearest
    error = build.binary("fsub", value, build.cast("fpext", nearest, "double"))
    return step_float(build, nearest, error, mode)


def narrow_directed(build: Builder, value: Value, scalar: Scalar, mode: str) -> Value:
    """An f32 rounded by `rz`, `rm` or `rp` into f16 or bf16, as its bits."""
    nearest = narrow(build, value, scalar)
    error = build.binary("fsub", value, widen(build, nearest, scalar))
    return canonical_nan(build, value, step(build, nearest, error, mode))


def narrow_double(build: Builder, value: Value, scalar: Scalar) -> Value:
    """A double rounded once, to nearest even, into f16 or bf16, as its bits."""
    return narrow(build, double_to_float(build, value, "odd"), scalar)


def to_double(build: Builder, value: Value) -> Value:
    """An f32 as a double."""
    return build.cast("fpext", value, "double") if bits_of(value.element) < 64 else value
