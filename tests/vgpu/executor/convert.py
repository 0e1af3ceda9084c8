"""`cvt`, from the PTX ISA."""

from __future__ import annotations

import numpy as np

from .formats import FORMATS, ROUNDINGS, Bits, decode, encode, flushed, sum_to_odd
from .integer import from_numbers, numbers, width_of

_TO_INTEGRAL = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
_TO_FLOAT = ("rn", "rz", "rm", "rp", "rna")
_PACKED = {"f16x2": "f16", "bf16x2": "bf16"}


def convert(modifiers: set[str], to: str, source: str, operands: list[Bits]) -> Bits:
    """Convert one operand, or two into the halves of a packed register, the first on top."""
    unknown = modifiers - {"ftz", "sat", "relu", *_TO_INTEGRAL, *_TO_FLOAT}
    if unknown or ("relu" in modifiers and to not in ("f16", "bf16", *_PACKED)):
        raise NotImplementedError(f"cvt with {sorted(modifiers)}")
    if to in _PACKED:
        high, low = (convert(modifiers, _PACKED[to], source, [bits]) for bits in operands)
        return (high << np.uint64(16)) | low
    (bits,) = operands
    if to == "tf32":
        return _to_tf32(modifiers, bits)
    if source in FORMATS:
        return _from_float(modifiers, to, source, bits)
    return _from_integer(modifiers, to, source, bits)


def _from_integer(modifiers: set[str], to: str, source: str, bits: Bits) -> Bits:
    values = numbers(bits, source)
    if to in FORMATS:
        high = np.array([float(value >> 32 << 32) for value in values])
        low = np.array([float(value & 0xFFFFFFFF) for value in values])
        exact = high + low if to == "f64" else sum_to_odd(high, low)
        return encode(exact, FORMATS[to], _mode(modifiers))
    if "sat" in modifiers:
        values = [_clamped(value, to) for value in values]
    return from_numbers(values, width_of(to))


def _from_float(modifiers: set[str], to: str, source: str, bits: Bits) -> Bits:
    ftz = "ftz" in modifiers
    values = decode(bits, FORMATS[source], ftz=ftz and source == "f32")
    integral = next((_TO_INTEGRAL[name] for name in modifiers if name in _TO_INTEGRAL), None)
    if to not in FORMATS:
        if integral is None:
            raise NotImplementedError("a conversion to integer without rounding")
        whole = ROUNDINGS[integral](values)
        return from_numbers([_integer(value, to, source) for value in whole], width_of(to))
    if integral is not None:
        values = np.copysign(ROUNDINGS[integral](values), values)
    if "relu" in modifiers:
        values = np.where(values <= 0, 0.0, values)
    if "sat" in modifiers:
        values = np.clip(np.nan_to_num(values, nan=0.0), 0.0, 1.0) + 0.0
    result = encode(values, FORMATS[to], _mode(modifiers))
    return flushed(result, FORMATS[to]) if ftz and to == "f32" else result


def _integer(value: float, to: str, source: str) -> int:
    if np.isnan(value):
        indefinite = source == "f64" or to in ("s64", "u64")
        return 1 << (width_of(to) - 1) if indefinite else 0
    if np.isinf(value):
        return _clamped(2**70 if value > 0 else -(2**70), to)
    return _clamped(int(value), to)


def _clamped(value: int, kind: str) -> int:
    width, signed = width_of(kind), kind[0] == "s"
    least = -(2 ** (width - 1)) if signed else 0
    return min(max(value, least), least + 2**width - 1)


def _mode(modifiers: set[str]) -> str:
    return next((mode for mode in _TO_FLOAT if mode in modifiers), "rn")


def _to_tf32(modifiers: set[str], bits: Bits) -> Bits:
    """`cvt.rna.tf32.f32`: 10 bits of fraction, halves away from zero."""
    if modifiers != {"rna"}:
        raise NotImplementedError(f"cvt to tf32 with {sorted(modifiers)}")
    rounded = (bits + np.uint64(0x1000)) & np.uint64(0xFFFFE000)
    exponent = np.uint64(0x7F800000)
    infinite = (bits & np.uint64(0x7FFFFFFF)) == exponent
    unordered = (bits & np.uint64(0x7FFFFFFF)) > exponent
    return np.where(unordered, np.uint64(0x7FFFFFFF), np.where(infinite, bits, rounded))
