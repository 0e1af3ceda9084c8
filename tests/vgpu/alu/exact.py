"""Floating-point formats in exact arithmetic: an independent model for the tests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np


@dataclass(frozen=True)
class Format:
    """A binary interchange format."""

    exponent_bits: int
    fraction_bits: int

    @property
    def width(self):
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self):
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def sign(self):
        return 1 << (self.width - 1)

    @property
    def infinity(self):
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    @property
    def nan(self):
        return self.sign - 1

    @property
    def smallest_normal(self):
        return 1 << self.fraction_bits

    def decode(self, bits):
        """A Fraction, or a float for infinities, NaNs and −0."""
        bits = int(bits)
        negative, magnitude = bool(bits & self.sign), bits & (self.sign - 1)
        if magnitude > self.infinity:
            return math.nan
        if magnitude == self.infinity:
            return -math.inf if negative else math.inf
        if magnitude == 0:
            return -0.0 if negative else Fraction(0)
        exponent, fraction = magnitude >> self.fraction_bits, magnitude % self.smallest_normal
        if exponent:
            fraction += self.smallest_normal
        scale = Fraction(2) ** (max(exponent, 1) - self.bias - self.fraction_bits)
        return (-1 if negative else 1) * fraction * scale

    def encode(self, value, mode="rn", zero_negative=False):
        """The bits of an exact value rounded in a mode: rn, rz, rm, rp."""
        if isinstance(value, float):
            if math.isnan(value):
                return self.nan
            if math.isinf(value):
                return self.infinity | (self.sign if value < 0 else 0)
            return self.sign if math.copysign(1, value) < 0 else 0
        if value == 0:
            return self.sign if zero_negative else 0
        negative, magnitude = value < 0, abs(value)
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        while Fraction(2) ** exponent > magnitude:
            exponent -= 1
        while Fraction(2) ** (exponent + 1) <= magnitude:
            exponent += 1
        exponent = max(exponent, 1 - self.bias)
        units = magnitude / Fraction(2) ** (exponent - self.fraction_bits)
        whole, rest = units.numerator // units.denominator, units % 1
        up = {
            "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
            "rz": False,
            "rm": negative and rest > 0,
            "rp": not negative and rest > 0,
        }[mode]
        whole += up
        bits = whole + (exponent + self.bias - 1) * self.smallest_normal
        if bits >= self.infinity:
            away = mode == "rn" or mode == ("rm" if negative else "rp")
            bits = self.infinity if away else self.infinity - 1
        return bits | (self.sign if negative else 0)

    def flush(self, bits):
        """Subnormal bits as a zero of the same sign."""
        magnitude = int(bits) & (self.sign - 1)
        return int(bits) & self.sign if magnitude < self.smallest_normal else int(bits)

    def is_nan(self, bits):
        return (int(bits) & (self.sign - 1)) > self.infinity


F16, BF16, F32, F64 = Format(5, 10), Format(8, 7), Format(8, 23), Format(11, 52)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
DTYPES = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def signed_zero(value):
    """Whether a decoded value is −0."""
    return isinstance(value, float) and value == 0


def special_bits(form):
    """Zeros, subnormals, limits, infinities, NaNs with payloads, ones, of both signs."""
    one = form.bias << form.fraction_bits
    magnitudes = [
        *(0, 1, 2, form.smallest_normal - 1, form.smallest_normal, form.smallest_normal + 1),
        *(one - 1, one, one + 1, 3 * form.smallest_normal // 2 + one, form.infinity - 1),
        *(
            form.infinity,
            form.infinity + 1,
            form.nan,
            form.nan - 3,
            one + form.smallest_normal // 2,
        ),
    ]
    return [sign | magnitude for sign in (0, form.sign) for magnitude in magnitudes]


def random_bits(form, count, seed):
    """Random patterns: a half over all bits, a half with exponents near one, a tenth special."""
    generator = np.random.default_rng(seed)
    bits = generator.integers(0, 1 << form.width, count, dtype=np.uint64)
    near = generator.integers(0, 1 << form.fraction_bits, count, dtype=np.uint64)
    exponent = generator.integers(-6, 7, count) + form.bias
    near |= exponent.astype(np.uint64) << np.uint64(form.fraction_bits)
    near |= generator.integers(0, 2, count, dtype=np.uint64) << np.uint64(form.width - 1)
    bits = np.where(generator.random(count) < 0.5, bits, near)
    special = np.array(special_bits(form), np.uint64)
    chosen = special[generator.integers(0, len(special), count)]
    bits = np.where(generator.random(count) < 0.1, chosen, bits)
    return bits.astype(DTYPES[form.width])


def operand_tuples(form, operands, count, seed):
    """Operand arrays: every pair of specials, then random ones."""
    columns = [random_bits(form, count, seed + index) for index in range(operands)]
    special = np.array(special_bits(form), DTYPES[form.width])
    if operands == 1:
        return [np.concatenate([special, columns[0]])]
    first, second = (grid.reshape(-1) for grid in np.meshgrid(special, special))
    rest = np.random.default_rng(seed).permutation(first)
    heads = [first, second, rest][:operands]
    return [np.concatenate([head, column]) for head, column in zip(heads, columns, strict=True)]
