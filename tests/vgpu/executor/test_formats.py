"""Rounding in the executor, against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .floating import arithmetic
from .formats import BF16, F16, F32, FORMATS, decode, encode, flushed

DIRECTIONS = ("rn", "rz", "rm", "rp")


def neighbours(form, exact):
    """The largest number of the format below or at `exact`, and the smallest above or at it."""
    guess = encode(np.array([float(exact)]), form)
    step = np.array([-2, -1, 0, 1, 2])
    magnitude = (guess & ~form.sign).astype(np.int64)[0] + step
    magnitude = magnitude[magnitude >= 0].astype(np.uint64)
    near = np.concatenate([magnitude, magnitude | form.sign, np.array([0], np.uint64)])
    values = [Fraction(float(v)) for v in decode(near, form) if np.isfinite(v)]
    below = [value for value in values if value <= exact]
    above = [value for value in values if value >= exact]
    return max(below, default=None), min(above, default=None)


def bits_of(form):
    exponent = (1 << (form.width - 1)) - (1 << form.fraction_bits)
    finite = st.integers(0, 2**form.width - 1).filter(lambda bits: bits & exponent != exponent)
    near_one = st.integers(0, 2**form.fraction_bits - 1).map(
        lambda fraction: fraction | int(encode(np.array([1.0]), form)[0])
    )
    return st.one_of(finite, near_one)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "mul", "fma"])
def test_results_are_rounded_once(kind, name):
    form = FORMATS[kind]

    @settings(max_examples=150, derandomize=True, deadline=None, database=None)
    @given(bits_of(form), bits_of(form), bits_of(form), st.sampled_from(DIRECTIONS))
    def check(a, b, c, mode):
        operands = [np.array([bits], np.uint64) for bits in (a, b, c)][: 3 if name == "fma" else 2]
        x, y, *z = (Fraction(float(decode(bits, form)[0])) for bits in operands)
        exact = {"add": x + y, "mul": x * y}.get(name, x * y + sum(z))
        with np.errstate(all="ignore"):
            result = float(decode(arithmetic(name, {mode}, kind, operands), form)[0])
            low, high = neighbours(form, exact)
        if low is None or high is None:
            assert abs(result) in (np.inf, form.largest)
            return
        expected = {"rm": low, "rp": high, "rz": low if exact > 0 else high}.get(mode)
        if expected is None:
            assert abs(Fraction(result) - exact) == min(exact - low, high - exact)
        else:
            assert Fraction(result) == expected

    check()


@pytest.mark.parametrize(
    ("value", "form", "mode", "bits"),
    [
        (1.0, F32, "rn", 0x3F800000),
        (-0.0, F32, "rn", 0x80000000),
        (np.nan, F32, "rn", 0x7FFFFFFF),
        (np.nan, F16, "rn", 0x7FFF),
        (np.nan, BF16, "rn", 0x7FFF),
        (1 + 2.0**-11, F16, "rn", 0x3C00),
        (1 + 3 * 2.0**-11, F16, "rn", 0x3C02),
        (1 + 2.0**-11, F16, "rna", 0x3C01),
        (1 + 2.0**-8, BF16, "rn", 0x3F80),
        (65519.0, F16, "rn", 0x7BFF),
        (65520.0, F16, "rn", 0x7C00),
        (65520.0, F16, "rz", 0x7BFF),
        (-65520.0, F16, "rp", 0xFBFF),
        (-65520.0, F16, "rm", 0xFC00),
        (2.0**-149, F32, "rn", 1),
        (2.0**-150, F32, "rn", 0),
        (2.0**-150, F32, "rp", 1),
        (3 * 2.0**-150, F32, "rn", 2),
    ],
)
def test_rounding_of_single_numbers(value, form, mode, bits):
    assert encode(np.array([value]), form, mode).tolist() == [bits]


@pytest.mark.parametrize("mode", DIRECTIONS)
def test_numbers_that_cancel_leave_a_negative_zero_when_rounding_down(mode):
    one, zero = np.array([0x3F800000], np.uint64), np.array([0], np.uint64)
    cancelled = 0x80000000 if mode == "rm" else 0
    assert arithmetic("sub", {mode}, "f32", [one, one]).tolist() == [cancelled]
    assert arithmetic("add", {mode}, "f32", [zero, zero]).tolist() == [0]
    assert arithmetic("add", {mode}, "f32", [zero | F32.sign] * 2).tolist() == [0x80000000]


def test_flushing_keeps_the_sign_and_spares_normal_numbers():
    bits = np.array([1, 0x807FFFFF, 0x00800000, 0x80000000], np.uint64)
    assert flushed(bits, F32).tolist() == [0, 0x80000000, 0x00800000, 0x80000000]
