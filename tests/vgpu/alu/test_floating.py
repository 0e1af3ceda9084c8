"""IEEE arithmetic against exact fractions, in every format and rounding."""

import math
from fractions import Fraction

import numpy as np
import pytest

from .exact import F16, F32, FORMATS, operand_tuples, signed_zero

MODES = ("rn", "rz", "rm", "rp")


def negative(value):
    return math.copysign(1, value) < 0 if isinstance(value, float) else value < 0


def as_fraction(value):
    return Fraction(0) if signed_zero(value) else value


def special(value):
    """An infinity or a NaN."""
    return isinstance(value, float) and not math.isfinite(value)


def exact_sum(a, b, mode):
    """An exact sum; −0 where IEEE gives it."""
    if special(a) or special(b):
        return float(a if special(a) else 0) + float(b if special(b) else 0)
    total = as_fraction(a) + as_fraction(b)
    if total == 0:
        both = signed_zero(a) and signed_zero(b)
        any_negative = negative(a) or negative(b)
        return -0.0 if both or (mode == "rm" and any_negative) else Fraction(0)
    return total


def exact_product(a, b):
    sign = -1 if negative(a) != negative(b) else 1
    if special(a) or special(b):
        if any(isinstance(v, float) and math.isnan(v) for v in (a, b)) or 0 in (a, b):
            return math.nan
        return sign * math.inf
    product = as_fraction(a) * as_fraction(b)
    return -0.0 if product == 0 and sign < 0 else product


def exact_quotient(a, b):
    sign = -1 if negative(a) != negative(b) else 1
    a_infinite, b_infinite = (isinstance(v, float) and math.isinf(v) for v in (a, b))
    if any(isinstance(v, float) and math.isnan(v) for v in (a, b)):
        return math.nan
    if (a_infinite and b_infinite) or (a == 0 and b == 0):
        return math.nan
    if a_infinite or b == 0:
        return sign * math.inf
    if b_infinite or a == 0:
        return Fraction(0) if sign > 0 else -0.0
    return a / b


def negated(value):
    return -value if value != 0 else (Fraction(0) if signed_zero(value) else -0.0)


EXACT = {
    "add": lambda mode, a, b: exact_sum(a, b, mode),
    "sub": lambda mode, a, b: exact_sum(a, negated(b), mode),
    "mul": lambda mode, a, b: exact_product(a, b),
    "div": lambda mode, a, b: exact_quotient(a, b),
    "fma": lambda mode, a, b, c: exact_sum(exact_product(a, b), c, mode),
    "rcp": lambda mode, a: exact_quotient(Fraction(1), a),
}


def expected_bits(form, operation, mode, columns, flush=False):
    results = []
    for row in zip(*columns, strict=True):
        operands = [form.flush(bits) if flush else int(bits) for bits in row]
        value = EXACT[operation](mode, *(form.decode(bits) for bits in operands))
        bits = form.encode(value, mode)
        results.append(form.flush(bits) if flush else bits)
    return np.array(results, columns[0].dtype)


def agree(form, actual, expected, canonical=False):
    """Equal bits; any NaN for a NaN unless the canonical one is promised."""
    if canonical:
        return np.array_equal(actual, expected)
    nan = np.array([form.is_nan(bits) for bits in expected])
    got = np.array([form.is_nan(bits) for bits in actual])
    return np.array_equal(nan, got) and np.array_equal(actual[~nan], expected[~nan])


@pytest.mark.parametrize("name", ("f32", "f64"))
@pytest.mark.parametrize("operation", ("add", "sub", "mul", "div", "fma"))
def test_nearest(alu, operation, name):
    form = FORMATS[name]
    columns = operand_tuples(form, 3 if operation == "fma" else 2, 600, 1)
    actual = alu(f"{operation}.rn.{name}", *columns)
    assert agree(form, actual, expected_bits(form, operation, "rn", columns))


@pytest.mark.parametrize("mode", ("rz", "rm", "rp"))
@pytest.mark.parametrize("operation", ("add", "sub", "mul", "div", "fma", "rcp"))
def test_directed(alu, operation, mode):
    columns = operand_tuples(F32, {"fma": 3, "rcp": 1}.get(operation, 2), 300, 2)
    actual = alu(f"{operation}.{mode}.f32", *columns)
    assert agree(F32, actual, expected_bits(F32, operation, mode, columns))


@pytest.mark.parametrize("mode", ("rz", "rm", "rp"))
def test_directed_double_sum(alu, mode):
    form = FORMATS["f64"]
    columns = operand_tuples(form, 2, 600, 3)
    columns[1][-300:] = columns[0][-300:] ^ np.uint64(1 << 63 | 5)
    for operation in ("add", "sub"):
        actual = alu(f"{operation}.{mode}.f64", *columns)
        assert agree(form, actual, expected_bits(form, operation, mode, columns))


@pytest.mark.parametrize("operation", ("add", "mul", "div", "fma"))
def test_flush(alu, operation):
    columns = operand_tuples(F32, 3 if operation == "fma" else 2, 300, 4)
    actual = alu(f"{operation}.rn.ftz.f32", *columns)
    expected = expected_bits(F32, operation, "rn", columns, flush=True)
    assert agree(F32, actual, expected)


@pytest.mark.parametrize("name", ("f16", "bf16"))
@pytest.mark.parametrize("operation", ("add", "sub", "mul", "fma"))
def test_narrow(alu, operation, name):
    form = FORMATS[name]
    columns = operand_tuples(form, 3 if operation == "fma" else 2, 1500, 5)
    if operation == "fma":  # products near a midpoint with a far smaller or larger addend
        columns[2][-500:] = (columns[2][-500:] & 0x8000) | (np.arange(500) % 700).astype(np.uint16)
    rounding = "rn." if operation == "fma" else ""
    expected = expected_bits(form, operation, "rn", columns)
    assert np.array_equal(alu(f"{operation}.{rounding}{name}", *columns), expected)
    pairs = [c.astype(np.uint32) | np.roll(c, 1).astype(np.uint32) << 16 for c in columns]
    both = expected.astype(np.uint32) | np.roll(expected, 1).astype(np.uint32) << 16
    assert np.array_equal(alu(f"{operation}.{rounding}{name}x2", *pairs), both)


def test_fma_of_bf16_is_rounded_once(alu):
    # The product is half-way between two numbers; an addend of 2⁻¹⁰⁰ decides.
    a = np.array([0x3F81, 0x3F81], np.uint16)
    form = FORMATS["bf16"]
    c = np.array(
        [form.encode(Fraction(-1, 1 << 100)), form.encode(Fraction(1, 1 << 100))], np.uint16
    )
    b = np.array([0x3FC0, 0x3FC0], np.uint16)
    assert np.array_equal(alu("fma.rn.bf16", a, b, c), expected_bits(form, "fma", "rn", (a, b, c)))
    assert alu("fma.rn.bf16", a, b, c)[0] != alu("fma.rn.bf16", a, b, c)[1]


def test_flush_of_f16(alu):
    columns = operand_tuples(F16, 2, 600, 6)
    for operation in ("add", "mul"):
        expected = expected_bits(F16, operation, "rn", columns, flush=True)
        assert np.array_equal(alu(f"{operation}.ftz.f16", *columns), expected)


def test_saturation(alu):
    columns = operand_tuples(F32, 2, 300, 7)
    plain = alu("add.f32", *columns).view(np.float32)
    expected = np.where(plain > 0, np.minimum(plain, np.float32(1)), np.float32(0))
    assert np.array_equal(alu("add.sat.f32", *columns), expected.view(np.uint32))
    narrow = operand_tuples(F16, 3, 300, 8)
    plain = alu("fma.rn.f16", *narrow).view(np.float16)
    expected = np.where(plain > 0, np.minimum(plain, np.float16(1)), np.float16(0))
    assert np.array_equal(alu("fma.rn.sat.f16", *narrow), expected.view(np.uint16))


@pytest.mark.parametrize("name", ("f16", "bf16"))
def test_relu(alu, name):
    form = FORMATS[name]
    columns = operand_tuples(form, 3, 300, 9)
    plain = alu(f"fma.rn.{name}", *columns)
    clamped = [0 if bits & form.sign and not form.is_nan(bits) else bits for bits in plain]
    assert alu(f"fma.rn.relu.{name}", *columns).tolist() == [int(bits) for bits in clamped]


@pytest.mark.parametrize("mode", MODES)
def test_square_root(alu, mode):
    (a,) = operand_tuples(F32, 1, 400, 10)

    def root(bits):
        value = F32.decode(bits)
        if value == 0 or (isinstance(value, float) and not value < 0):
            return int(bits)
        if value < 0:
            return F32.nan
        shift = 400 - 2 * F32.bias % 2
        scaled = value * 4**shift
        whole = math.isqrt(scaled.numerator // scaled.denominator)
        exact = Fraction(2 * whole + (whole * whole != scaled), 2)  # a sticky half
        return F32.encode(exact / 2**shift, mode)

    assert agree(F32, alu(f"sqrt.{mode}.f32", a), np.array([root(b) for b in a], np.uint32))


@pytest.mark.parametrize("name", ("f32", "f64", "f16", "bf16"))
def test_signs(alu, name):
    form = FORMATS[name]
    (a,) = operand_tuples(form, 1, 200, 11)
    sign = a.dtype.type(form.sign)
    assert np.array_equal(alu(f"neg.{name}", a), a ^ sign)
    assert np.array_equal(alu(f"abs.{name}", a), a & ~sign)
    if name in ("f32", "f64"):
        b = np.roll(a, 3)
        assert np.array_equal(alu(f"copysign.{name}", a, b), (a & sign) | (b & ~sign))
    if name in ("f32", "f16"):
        flushed = np.array([form.flush(bits) for bits in a], a.dtype)
        assert np.array_equal(alu(f"neg.ftz.{name}", a), flushed ^ sign)


@pytest.mark.parametrize("name", ("f32", "f64"))
def test_properties(alu, name):
    form = FORMATS[name]
    (a,) = operand_tuples(form, 1, 200, 12)
    magnitude = [int(bits) & (form.sign - 1) for bits in a]
    classes = {
        "finite": lambda m: m < form.infinity,
        "infinite": lambda m: m == form.infinity,
        "number": lambda m: m <= form.infinity,
        "notanumber": lambda m: m > form.infinity,
        "normal": lambda m: form.smallest_normal <= m < form.infinity,
        "subnormal": lambda m: 0 < m < form.smallest_normal,
    }
    for wanted, test in classes.items():
        assert alu(f"testp.{wanted}.{name}", a).tolist() == [test(m) for m in magnitude], wanted


def extremum(form, operation, a, b, propagates):
    nans = [form.is_nan(bits) for bits in (a, b)]
    if all(nans) or (any(nans) and propagates):
        return form.nan
    if any(nans):
        return int(b if nans[0] else a)

    def key(bits):
        value = form.decode(bits)
        return (
            float(value) if math.inf in (value, -value) else as_fraction(value),
            not bits >> (form.width - 1),
        )

    return int({"min": min, "max": max}[operation](a, b, key=key))


@pytest.mark.parametrize("name", ("f32", "f64", "f16", "bf16"))
@pytest.mark.parametrize("operation", ("min", "max"))
def test_extrema(alu, operation, name):
    form = FORMATS[name]
    columns = [[int(bits) for bits in column] for column in operand_tuples(form, 2, 200, 13)]
    arrays = operand_tuples(form, 2, 200, 13)
    variants = {"": False} if name == "f64" else {"": False, "NaN.": True}
    for modifier, propagates in variants.items():
        expected = [
            extremum(form, operation, a, b, propagates) for a, b in zip(*columns, strict=True)
        ]
        actual = alu(f"{operation}.{modifier}{name}", *arrays)
        assert agree(form, actual, np.array(expected, arrays[0].dtype), canonical=name != "f64")
    if name == "f64":
        return
    magnitude = form.sign - 1
    for modifier, propagates in variants.items():
        expected = []
        for a, b in zip(*columns, strict=True):
            chosen = extremum(form, operation, a & magnitude, b & magnitude, propagates)
            sign = (a ^ b) & form.sign
            expected.append(chosen if form.is_nan(chosen) else chosen | sign)
        actual = alu(f"{operation}.{modifier}xorsign.abs.{name}", *arrays)
        assert actual.tolist() == expected


def test_packed_and_flushing_extrema(alu):
    columns = operand_tuples(F16, 2, 200, 14)
    single = alu("max.NaN.f16", *columns).astype(np.uint32)
    pairs = [c.astype(np.uint32) | c[::-1].astype(np.uint32) << 16 for c in columns]
    assert np.array_equal(alu("max.NaN.f16x2", *pairs), single | single[::-1] << 16)
    a, b = operand_tuples(F32, 2, 200, 15)
    flushed = [np.array([F32.flush(v) for v in column], np.uint32) for column in (a, b)]
    assert np.array_equal(alu("min.ftz.f32", a, b), alu("min.f32", *flushed))
