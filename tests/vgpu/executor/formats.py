"""Binary floating-point formats: bits to exact doubles, and doubles rounded once to bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Bits = np.ndarray
"""Raw register bits, one `uint64` per thread."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format with an implied leading bit."""

    width: int
    fraction_bits: int
    nan: int
    """The canonical NaN."""

    @property
    def least_exponent(self) -> int:
        """The exponent of the smallest normal number."""
        return 2 - 2 ** (self.width - self.fraction_bits - 2)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return (2.0 - 2.0**-self.fraction_bits) * 2.0 ** (1 - self.least_exponent)

    @property
    def sign(self) -> np.uint64:
        """The sign bit."""
        return np.uint64(1 << (self.width - 1))


F16 = Format(16, 10, 0x7FFF)
BF16 = Format(16, 7, 0x7FFF)
F32 = Format(32, 23, 0x7FFFFFFF)
F64 = Format(64, 52, 0x7FF8000000000000)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def _away(values: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(values) + 0.5), values)


ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rn": np.rint,
    "rna": _away,
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
}
"""How each rounding modifier makes a double an integer."""


@np.errstate(invalid="ignore")  # numpy says so when a cast quiets a NaN
def decode(bits: Bits, form: Format, *, ftz: bool = False) -> np.ndarray:
    """The numbers behind the bits, exactly, with subnormals as signed zeros under `ftz`."""
    if ftz:
        bits = flushed(bits, form)
    if form is F64:
        return bits.view(np.float64)
    if form is F16:
        return bits.astype(np.uint16).view(np.float16).astype(np.float64)
    wide = bits << np.uint64(16) if form is BF16 else bits
    return wide.astype(np.uint32).view(np.float32).astype(np.float64)


def encode(values: np.ndarray, form: Format, mode: str = "rn", *, ftz: bool = False) -> Bits:
    """Bits of `values` rounded once; NaNs become the canonical one."""
    if form is F64:
        bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    else:
        bits = _narrow(_rounded(values, form, mode), form)
    bits = np.where(np.isnan(values), np.uint64(form.nan), bits)
    return flushed(bits, form) if ftz else bits


def flushed(bits: Bits, form: Format) -> Bits:
    """Subnormals replaced by zeros of the same sign."""
    exponent = np.uint64((1 << (form.width - 1)) - (1 << form.fraction_bits))
    return np.where(bits & exponent == 0, bits & form.sign, bits)


def _rounded(values: np.ndarray, form: Format, mode: str) -> np.ndarray:
    finite = np.isfinite(values)
    safe = np.where(finite, values, 0.0)
    quantum = np.maximum(np.frexp(safe)[1] - 1, form.least_exponent) - form.fraction_bits
    result = np.ldexp(ROUNDINGS[mode](np.ldexp(safe, -quantum)), quantum)
    over = np.abs(result) > form.largest
    kept = {"rz": over, "rm": over & (safe > 0), "rp": over & (safe < 0)}.get(mode, False)
    limit = np.where(kept, form.largest, np.inf)
    return np.where(finite, np.where(over, np.copysign(limit, safe), result), values)


def _narrow(values: np.ndarray, form: Format) -> Bits:
    """Bits of numbers that the format holds exactly."""
    if form is F16:
        return values.astype(np.float16).view(np.uint16).astype(np.uint64)
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return bits >> np.uint64(16) if form is BF16 else bits


def sum_to_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`a + b` in double, rounded to odd, so that one more rounding gives the exact sum's.

    An inexact sum has its last bit set (Boldo and Melquiond, "When double rounding is odd", 2005);
    the error of the nearest sum comes from Knuth's two-sum.
    """
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    even = (np.ascontiguousarray(total).view(np.uint64) & np.uint64(1)) == 0
    adjust = np.isfinite(total) & (error != 0) & even
    return np.where(adjust, np.nextafter(total, np.copysign(np.inf, error)), total)
