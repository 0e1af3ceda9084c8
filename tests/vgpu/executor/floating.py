"""Floating-point instructions on raw bits, from the PTX ISA.

NaN results are canonical (float64 aside, where only their being NaN is meant). Approximate
instructions give the correctly rounded result, which lies within what the ISA allows;
`APPROXIMATE_ERROR` says how far another implementation may be.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from .formats import F32, F64, FORMATS, Bits, Format, decode, encode, flushed, sum_to_odd

APPROXIMATE = {
    "rcp": lambda x: 1.0 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}

APPROXIMATE_ERROR = {
    "rcp": ("relative", 2.0**-23),
    "sqrt": ("relative", 2.0**-23),
    "rsqrt": ("relative", 2.0**-22.4),
    "ex2": ("relative", 2.0**-22),
    "lg2": ("absolute", 2.0**-22),
    "sin": ("absolute", 2.0**-20.5),
    "cos": ("absolute", 2.0**-20.5),
    "tanh": ("relative", 2.0**-10.987),
    "div": ("relative", 2.0**-22),
}
"""Largest error of each approximate float32 instruction: its kind and its size."""

_PACKED = {"f16x2": "f16", "bf16x2": "bf16"}
_MODES = ("rn", "rz", "rm", "rp")

_COMPARISONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def is_floating(kind: str) -> bool:
    """Whether a PTX type is a floating one."""
    return kind in FORMATS or kind in _PACKED


def arithmetic(name: str, modifiers: set[str], kind: str, operands: list[Bits]) -> Bits:
    """`add`, `sub`, `mul`, `fma`, `div`, `neg`, `abs`, `min`, `max`, `copysign`, approximations."""
    if kind in _PACKED:
        return _halfwise(name, modifiers, _PACKED[kind], operands)
    form = FORMATS[kind]
    if name in ("neg", "abs", "copysign"):
        return _sign(name, _only(modifiers, "ftz"), form, operands)
    if name in ("min", "max"):
        return _extreme(name, _only(modifiers, "ftz", "NaN", "xorsign", "abs"), form, operands)
    _only(modifiers, "ftz", "sat", "approx", "full", *_MODES)
    ftz = "ftz" in modifiers
    mode = next((mode for mode in _MODES if mode in modifiers), "rn")
    values = [decode(operand, form, ftz=ftz) for operand in operands]
    if name in ("div", "rcp", "sqrt") and not modifiers & {"approx", "full"}:
        bits = _exactly_rounded(name, mode, form, values)
    elif form is F64:
        bits = _double(name, mode, values)
    else:
        bits = encode(_wide(name, values, mode), form, mode)
    if "sat" in modifiers:
        unit = np.clip(np.nan_to_num(decode(bits, form), nan=0.0), 0.0, 1.0)
        bits = encode(unit + 0.0, form)
    return flushed(bits, form) if ftz else bits


def mixed(name: str, modifiers: set[str], kinds: list[str], operands: list[Bits]) -> Bits:
    """`add`, `sub` and `fma` whose last operand and whose result are f32, and the others narrow."""
    _only(modifiers, "f32", "rn")
    pairs = zip(operands, kinds, strict=True)
    values = [decode(operand, FORMATS[kind], ftz=False) for operand, kind in pairs]
    return encode(_wide(name, values, "rn"), F32)


def compare(name: str, ftz: bool, kind: str, a: Bits, b: Bits) -> np.ndarray:
    """The truth of a `setp` comparison."""
    x, y = (decode(operand, FORMATS[kind], ftz=ftz) for operand in (a, b))
    unordered = np.isnan(x) | np.isnan(y)
    if name in ("num", "nan"):
        return unordered if name == "nan" else ~unordered
    if name in _COMPARISONS:
        return _COMPARISONS[name](x, y) & ~unordered
    return _COMPARISONS[name.removesuffix("u")](x, y) | unordered


def test_property(name: str, kind: str, bits: Bits) -> np.ndarray:
    """The truth of `testp`."""
    form = FORMATS[kind]
    x = decode(bits, form)
    tests = {
        "finite": np.isfinite(x),
        "infinite": np.isinf(x),
        "number": ~np.isnan(x),
        "notanumber": np.isnan(x),
        "normal": np.isfinite(x) & (np.abs(x) >= 2.0**form.least_exponent),
        "subnormal": (x != 0) & (np.abs(x) < 2.0**form.least_exponent),
    }
    return tests[name]


def _only(modifiers: set[str], *allowed: str) -> set[str]:
    if modifiers - set(allowed):
        raise NotImplementedError(f"modifiers {sorted(modifiers - set(allowed))}")
    return modifiers


def _halfwise(name: str, modifiers: set[str], kind: str, operands: list[Bits]) -> Bits:
    sixteen = np.uint64(16)
    low = arithmetic(name, modifiers, kind, [bits & np.uint64(0xFFFF) for bits in operands])
    high = arithmetic(name, modifiers, kind, [bits >> sixteen for bits in operands])
    return (high << sixteen) | low


def _sign(name: str, modifiers: set[str], form: Format, operands: list[Bits]) -> Bits:
    if name == "copysign":
        return (operands[0] & form.sign) | (operands[1] & ~form.sign)
    bits = operands[0] ^ form.sign if name == "neg" else operands[0] & ~form.sign
    return flushed(bits, form) if "ftz" in modifiers else bits


def _extreme(name: str, modifiers: set[str], form: Format, operands: list[Bits]) -> Bits:
    result = operands[0]
    for operand in operands[1:]:
        result = _extreme_of_two(name, modifiers, form, result, operand)
    return result


def _extreme_of_two(name: str, modifiers: set[str], form: Format, a: Bits, b: Bits) -> Bits:
    if "ftz" in modifiers:
        a, b = flushed(a, form), flushed(b, form)
    sign = (a ^ b) & form.sign
    if "xorsign" in modifiers:
        a, b = a & ~form.sign, b & ~form.sign
    x, y = decode(a, form), decode(b, form)
    x_is_less = (x < y) | ((x == y) & np.signbit(x))
    bits = np.where(x_is_less == (name == "min"), a, b)
    bits = np.where(np.isnan(x), b, np.where(np.isnan(y), a, bits))
    spoiled = np.isnan(x) | np.isnan(y) if "NaN" in modifiers else np.isnan(x) & np.isnan(y)
    if "xorsign" in modifiers:
        bits = bits | sign
    return np.where(spoiled, np.uint64(form.nan), bits)


def _wide(name: str, values: list[np.ndarray], mode: str) -> np.ndarray:
    """A result in double that needs one more rounding: exact, or rounded to odd."""
    if name == "add":
        return _sum(*values, mode)
    if name == "sub":
        return _sum(values[0], -values[1], mode)
    if name == "mul":
        return values[0] * values[1]
    if name == "fma":
        return _sum(values[0] * values[1], values[2], mode)
    if name == "div":
        return values[0] / values[1]
    return APPROXIMATE[name](values[0])


def _sum(a: np.ndarray, b: np.ndarray, mode: str) -> np.ndarray:
    """The sum rounded to odd; rounding down, numbers that cancel leave a negative zero."""
    total = sum_to_odd(a, b)
    if mode != "rm":
        return total
    both_positive = ~np.signbit(a) & ~np.signbit(b)
    return np.where((total == 0) & ~both_positive, -0.0, total)


def _exactly_rounded(name: str, mode: str, form: Format, values: list[np.ndarray]) -> Bits:
    """Division and square root, which numpy rounds to nearest in the format itself."""
    if mode != "rn" or form not in (F32, F64):
        raise NotImplementedError(f"{name}.{mode} in {form.width} bits")
    narrow = [value.astype(np.float32 if form is F32 else np.float64) for value in values]
    if name == "sqrt":
        result = np.sqrt(narrow[0])
    else:
        result = narrow[0] / narrow[1] if name == "div" else 1 / narrow[0]
    return encode(result.astype(np.float64), form)


def _double(name: str, mode: str, values: list[np.ndarray]) -> Bits:
    if mode != "rn":
        raise NotImplementedError(f"{name}.{mode}.f64")
    if name == "fma":
        return encode(np.array([_fused(*triple) for triple in zip(*values, strict=True)]), F64)
    operations = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
    return encode(operations[name](*values), F64)


def _fused(a: float, b: float, c: float) -> float:
    """`a * b + c` rounded once."""
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        return float(a * b + c)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return float(a * b + c)
    try:
        return float(exact)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf
