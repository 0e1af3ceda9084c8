"""Conversions against exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

from .exact import BF16, DTYPES, F16, F32, FORMATS, operand_tuples, signed_zero

INTEGERS = tuple(f"{kind}{bits}" for kind in "su" for bits in (8, 16, 32, 64))


def limits(name):
    bits = int(name[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name[0] == "s" else (0, (1 << bits) - 1)


def register(name):
    """The width of the register that holds an integer type."""
    return max(int(name[1:]), 16)


def integers(name, seed):
    """Integers around every power of two, and random ones, as (numbers, register bits)."""
    low, high = limits(name)
    generator = np.random.default_rng(seed)
    values = {low, high, 0, 1, low + 1, high - 1}
    for power in range(int(name[1:])):
        values |= {s * (1 << power) + d for s in (1, -1) for d in (-1, 0, 1)}
        values |= {
            s * ((1 << power) + (1 << max(power - 24, 0)) + d) for s in (1, -1) for d in (-1, 0, 1)
        }
    values |= {
        int(v)
        for v in generator.integers(
            low, high, 200, endpoint=True, dtype=np.int64 if name[0] == "s" else np.uint64
        )
    }
    numbers = sorted(v for v in values if low <= v <= high)
    width = register(name)
    return numbers, np.array([v % (1 << width) for v in numbers], DTYPES[width])


@pytest.mark.parametrize("source", INTEGERS)
def test_between_integers(alu, source):
    numbers, bits = integers(source, 1)
    for destination in INTEGERS:
        if destination == source:
            continue
        low, high = limits(destination)
        width, size = register(destination), int(destination[1:])
        wrapped = [(v - low) % (1 << size) + low for v in numbers]
        expected = [v % (1 << width) for v in wrapped]
        assert alu(f"cvt.{destination}.{source}", bits).tolist() == expected, destination
        if destination in ("s8", "u16", "s32"):
            clamped = [max(low, min(high, v)) % (1 << width) for v in numbers]
            assert alu(f"cvt.sat.{destination}.{source}", bits).tolist() == clamped, destination


def test_bits_above_an_8_bit_source_are_ignored(alu):
    bits = np.array([0x1280, 0xFF7F, 0x00FF], np.uint16)
    assert alu("cvt.s32.s8", bits).view(np.int32).tolist() == [-128, 127, -1]
    assert alu("cvt.u32.u8", bits).tolist() == [128, 127, 255]


@pytest.mark.parametrize("source", ("s8", "s16", "u16", "s32", "u32", "s64", "u64"))
def test_from_integers(alu, source):
    numbers, bits = integers(source, 2)
    for destination, form in FORMATS.items():
        modes = ("rn",) if form.width == 16 or source[1:] != "64" else ("rn", "rz", "rm", "rp")
        for mode in (*modes, *(("rz",) if (source, destination) == ("s32", "f32") else ())):
            expected = [form.encode(Fraction(v), mode) for v in numbers]
            actual = alu(f"cvt.{mode}.{destination}.{source}", bits)
            assert actual.tolist() == expected, (mode, destination)


ROUNDERS = {"rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil, "rni": round}


def to_integer(form, bits, mode, destination, source_width):
    value = form.decode(bits)
    low, high = limits(destination)
    size = int(destination[1:])
    if isinstance(value, float) and math.isnan(value):
        whole = 1 << (size - 1) if 64 in (size, source_width) else 0
    elif isinstance(value, float) and math.isinf(value):
        whole = high if value > 0 else low
    else:
        exact = Fraction(0) if signed_zero(value) else value
        whole = max(low, min(high, ROUNDERS[mode](exact)))
    if destination[0] == "s" and whole >> (size - 1) == 1:
        whole -= 1 << size
    return whole % (1 << register(destination))


def numbers_near_limits(form, seed):
    """Patterns, and numbers with halves around the limits of the integer types."""
    (bits,) = operand_tuples(form, 1, 300, seed)
    near = [
        form.encode(sign * (Fraction(2) ** power + offset), "rz")
        for power in (0, 1, 7, 8, 15, 16, 31, 32, 63, 64)
        for offset in (0, Fraction(1, 2), Fraction(-1, 2), Fraction(3, 2), 1, -1)
        for sign in (1, -1)
    ]
    return np.concatenate([bits, np.array(near, bits.dtype)])


@pytest.mark.parametrize("source", ("f32", "f64", "f16", "bf16"))
def test_to_integers(alu, source):
    form = FORMATS[source]
    bits = numbers_near_limits(form, 3)
    destinations = ("s32", "u64", "s8") if source in ("f16", "bf16") else INTEGERS
    for index, destination in enumerate(destinations):
        modes = ROUNDERS if destination in ("s32", "u64") else (list(ROUNDERS)[index % 4],)
        for mode in modes:
            expected = [to_integer(form, b, mode, destination, form.width) for b in bits]
            actual = alu(f"cvt.{mode}.{destination}.{source}", bits)
            assert actual.tolist() == expected, (mode, destination)


def as_doubles(bits):
    """The f32 numbers among some bits, widened."""
    number = bits[~np.isnan(bits.view(np.float32))]
    return number.view(np.float32).astype(np.float64).view(np.uint64)


@pytest.mark.parametrize("mode", ("rn", "rz", "rm", "rp"))
def test_double_to_single(alu, mode):
    form = FORMATS["f64"]
    (bits,) = operand_tuples(form, 1, 400, 4)
    (single,) = operand_tuples(F32, 1, 300, 5)
    near = as_doubles(single)
    bits = np.concatenate([bits, near, near | np.uint64(1 << 28), near + np.uint64((1 << 28) + 1)])
    expected = [F32.encode(form.decode(b), mode) for b in bits]
    actual = alu(f"cvt.{mode}.f32.f64", bits)
    nan = [F32.is_nan(b) for b in expected]
    assert [F32.is_nan(b) for b in actual] == nan
    assert [int(b) for b, n in zip(actual, nan, strict=True) if not n] == [
        b for b, n in zip(expected, nan, strict=True) if not n
    ]
    flushed = alu(f"cvt.{mode}.ftz.f32.f64", bits)
    assert [int(b) for b, n in zip(flushed, nan, strict=True) if not n] == [
        F32.flush(b) for b, n in zip(expected, nan, strict=True) if not n
    ]


def near_ties(form, seed):
    """f32 patterns that lie on, or next to, numbers and midpoints of a narrow format."""
    (narrow,) = operand_tuples(form, 1, 400, seed)
    values = [form.decode(b) for b in narrow]
    bits = np.array([F32.encode(v) for v in values], np.uint32)
    half = np.uint32(1 << (22 - form.fraction_bits))
    (free,) = operand_tuples(F32, 1, 400, seed + 1)
    return np.concatenate([free, bits, bits + half, bits + half - 1, bits + half + 1, bits ^ 1])


@pytest.mark.parametrize("name,form", (("f16", F16), ("bf16", BF16)))
def test_single_to_narrow(alu, name, form):
    bits = near_ties(form, 6)
    values = [F32.decode(b) for b in bits]
    for mode in ("rn", "rz"):
        expected = [form.encode(v, mode) for v in values]
        assert alu(f"cvt.{mode}.{name}.f32", bits).tolist() == expected
        other = np.roll(bits, 11)
        packed = [
            high << 16 | low
            for high, low in zip(expected, np.roll(expected, 11).tolist(), strict=True)
        ]
        assert alu(f"cvt.{mode}.{name}x2.f32", bits, other).tolist() == packed


@pytest.mark.parametrize("name,form", (("f16", F16), ("bf16", BF16)))
def test_limits_of_narrow_results(alu, name, form):
    bits = near_ties(form, 8)
    largest = form.infinity - 1
    nearest = alu(f"cvt.rn.{name}.f32", bits)
    relu = [0 if b & form.sign and not form.is_nan(b) else int(b) for b in nearest]
    assert alu(f"cvt.rn.relu.{name}.f32", bits).tolist() == relu
    finite = [
        (int(b) & form.sign) | largest if int(b) & (form.sign - 1) == form.infinity else int(b)
        for b in nearest
    ]
    assert alu(f"cvt.rn.satfinite.{name}.f32", bits).tolist() == finite


@pytest.mark.parametrize("name,form", (("f16", F16), ("bf16", BF16)))
def test_double_to_narrow_is_rounded_once(alu, name, form):
    bits = as_doubles(near_ties(form, 10))
    finite = bits[(bits & np.uint64(0x7FFFFFFFFFFFFFFF)) - np.uint64(1) < 0x7FEFFFFFFFFFFFFF]
    bits = np.concatenate([bits, finite + np.uint64(1), finite - np.uint64(1)])
    expected = [form.encode(FORMATS["f64"].decode(b)) for b in bits]
    assert alu(f"cvt.rn.{name}.f64", bits).tolist() == expected


def test_widening_is_exact(alu):
    for name, form in (("f16", F16), ("bf16", BF16)):
        bits = np.arange(0, 1 << 16, 3, dtype=np.uint16)
        nan = (bits & 0x7FFF) > form.infinity
        expected = np.array([F32.encode(form.decode(b)) for b in bits[~nan]], np.uint32)
        actual = alu(f"cvt.f32.{name}", bits)
        assert np.array_equal(actual[~nan], expected)
        assert np.isnan(actual[nan].view(np.float32)).all()
    (bits,) = operand_tuples(F32, 1, 300, 12)
    number = ~np.isnan(bits.view(np.float32))
    assert np.array_equal(alu("cvt.f64.f32", bits)[number], as_doubles(bits))


@pytest.mark.parametrize("mode", ROUNDERS)
def test_integral_values(alu, mode):
    bits = numbers_near_limits(F32, 13)

    def integral(b):
        value = F32.decode(b)
        if isinstance(value, float):
            return int(b)
        whole = ROUNDERS[mode](value)
        return F32.encode(Fraction(whole), zero_negative=value < 0)

    number = np.array([not F32.is_nan(b) for b in bits])
    expected = np.array([integral(b) for b in bits], np.uint32)
    assert np.array_equal(alu(f"cvt.{mode}.f32.f32", bits)[number], expected[number])
    flushed = np.array([integral(F32.flush(b)) for b in bits], np.uint32)
    assert np.array_equal(alu(f"cvt.{mode}.ftz.f32.f32", bits)[number], flushed[number])


def test_saturation_to_the_unit_interval(alu):
    (bits,) = operand_tuples(F32, 1, 300, 14)
    value = bits.view(np.float32)
    expected = np.where(value > 0, np.minimum(value, np.float32(1)), np.float32(0))
    assert np.array_equal(alu("cvt.sat.f32.f32", bits), expected.view(np.uint32))
    tiny = np.where(expected < 2.0**-126, np.float32(0), expected)
    assert np.array_equal(alu("cvt.ftz.sat.f32.f32", bits), tiny.view(np.uint32))


def test_tf32(alu):
    (bits,) = operand_tuples(F32, 1, 1000, 15)
    bits[-300:] = (bits[-300:] & np.uint32(0xFFFFE000)) | np.uint32(0x1000)
    for mode in ("rna", "rn"):
        expected = []
        for b in (int(v) for v in bits):
            magnitude = b & 0x7FFFFFFF
            unit, rest = magnitude >> 13, magnitude & 0x1FFF
            up = rest > 0x1000 or (rest == 0x1000 and (mode == "rna" or unit & 1))
            if magnitude < 0x7F800000:
                magnitude = (unit + up) << 13
            expected.append(0x7FFFFFFF if magnitude > 0x7F800000 else b & 0x80000000 | magnitude)
        assert alu(f"cvt.{mode}.tf32.f32", bits).tolist() == expected
