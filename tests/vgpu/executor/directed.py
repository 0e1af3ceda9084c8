"""float64 rounded in a direction, from exact fractions."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

_MAX = Fraction(sys.float_info.max)


def directed(name: str, mode: str, *operands: float) -> float:
    """`add`, `sub`, `mul`, `fma`, `div`, `rcp`, `sqrt` of doubles in `rz`, `rm`, `rp` or `rn`."""
    if name == "rcp":
        name, operands = "div", (1.0, *operands)
    if name == "sub":
        name, operands = "add", (operands[0], -operands[1])
    if not all(map(math.isfinite, operands)) or _is_pole(name, operands):
        return _special(name, operands)
    exact = [Fraction(x) for x in operands]
    if name == "sqrt":
        return _root(operands[0], mode)
    terms = {
        "add": lambda: (exact[0], exact[1]),
        "mul": lambda: (exact[0] * exact[1],),
        "fma": lambda: (exact[0] * exact[1], exact[2]),
        "div": lambda: (exact[0] / exact[1],),
    }[name]()
    value = sum(terms)
    if value == 0:
        return _zero(name, mode, operands)
    return _rounded(value, mode)


def _is_pole(name: str, operands: tuple[float, ...]) -> bool:
    return (name == "div" and operands[1] == 0) or (name == "sqrt" and operands[0] < 0)


def _special(name: str, operands: tuple[float, ...]) -> float:
    """Results that infinities, NaNs and poles make, the same in every mode."""
    import numpy as np

    with np.errstate(all="ignore"):
        a, *rest = map(np.float64, operands)
        match name:
            case "add":
                return float(a + rest[0])
            case "mul":
                return float(a * rest[0])
            case "div":
                return float(a / rest[0])
            case "sqrt":
                return float(np.sqrt(a))
        product = a * rest[0]
        if math.isfinite(a) and math.isfinite(rest[0]):
            return float(rest[1])  # a finite product, though it may overflow in float64
        return float(product + rest[1])


def _zero(name: str, mode: str, operands: tuple[float, ...]) -> float:
    """The sign of an exact zero: that of the factors, or of the sum's rule."""

    def negative(x: float) -> bool:
        return math.copysign(1, x) < 0

    if name in ("mul", "div"):
        return -0.0 if negative(operands[0]) != negative(operands[1]) else 0.0
    if name == "fma":
        signs = (negative(operands[0]) != negative(operands[1]), negative(operands[2]))
        if Fraction(operands[2]) != 0:
            return -0.0 if mode == "rm" else 0.0
    else:
        signs = (negative(operands[0]), negative(operands[1]))
        if operands[0] != 0:
            return -0.0 if mode == "rm" else 0.0
    if signs[0] == signs[1]:
        return -0.0 if signs[0] else 0.0
    return -0.0 if mode == "rm" else 0.0


def _rounded(value: Fraction, mode: str) -> float:
    if mode == "rn":
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    down = mode == "rm" or (mode == "rz" and value > 0)
    return _floor(value) if down else -_floor(-value)


def _floor(value: Fraction) -> float:
    """The largest double that is not above a fraction."""
    if value > _MAX:
        return float(_MAX)
    if value < -_MAX:
        return -math.inf
    near = float(value)
    while Fraction(near) > value:
        near = math.nextafter(near, -math.inf)
    return near if value != 0 else 0.0


def _root(x: float, mode: str) -> float:
    if x == 0:
        return x
    near = math.sqrt(x)
    if mode == "rn":
        return near
    while Fraction(near) ** 2 > Fraction(x):
        near = math.nextafter(near, 0)
    while Fraction(math.nextafter(near, math.inf)) ** 2 <= Fraction(x):
        near = math.nextafter(near, math.inf)
    if mode == "rp" and Fraction(near) ** 2 < Fraction(x):
        near = math.nextafter(near, math.inf)
    return near
