"""Elementary functions that definitions call: f32 polynomials that vectorise, without libm.

The coefficients are minimax fits of this project (relative error below 2⁻²⁵ before rounding). Each
function takes and gives f32 and treats subnormals as numbers; `.ftz` is the caller's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from . import directed
from .builder import Builder, Value, shared_name

_EX2 = (
    0.6931471824645996,
    0.24022647738456726,
    0.055503323674201965,
    0.00961843691766262,
    0.0013398875016719103,
    0.0001535336341476068,
)
"""(2^f − 1) / f on [−1/2, 1/2], in powers of f."""
_LG2 = (
    1.4426950216293335,
    -0.7213473320007324,
    0.4808982312679291,
    -0.3606966435909271,
    0.2885673940181732,
    -0.23961740732192993,
    0.20460078120231628,
    -0.19106286764144897,
    0.18617413938045502,
    -0.10994832962751389,
)
"""log2(1 + f) / f on [√½ − 1, √2 − 1], in powers of f."""
_SIN = (
    1.5707963705062866,
    -0.6459640860557556,
    0.07969257980585098,
    -0.0046812607906758785,
    0.00015819507825654,
)
"""sin(r π/2) / r for |r| ≤ 1/2, in powers of r²."""
_COS = (1.0, -1.2337005138397217, 0.25366923213005066, -0.02086028829216957, 0.0009040216682478786)
"""cos(r π/2) for |r| ≤ 1/2, in powers of r²."""
_TANH = (
    -0.333333283662796,
    0.13333158195018768,
    -0.05394056439399719,
    0.021666349843144417,
    -0.008091972209513187,
    0.0020646683406084776,
)
"""(tanh(x) / x − 1) / x² for |x| ≤ 0.65, in powers of x²."""

_FLOAT_INTEGER = 1.5 * 2.0**23
"""Adding it rounds a small f32 to an integer that its low bits then hold."""
_DOUBLE_INTEGER = 1.5 * 2.0**52
_SQUARE_ROOT_HALF_BITS = 0x3F3504F3


def _polynomial(build: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule; the lowest power comes first."""
    total = build.constant(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        total = build.intrinsic("fma", total, x, build.constant(coefficient, x))
    return total


def _power_of_two(build: Builder, exponent: Value) -> Value:
    biased = build.binary("add", exponent, 127)
    return build.bitcast(build.binary("shl", biased, 23), "float")


def ex2(build: Builder) -> None:
    """2^x: the exponent is applied in two halves so that subnormal results round once."""
    x = build.parameter("float")
    x = build.select(build.compare("olt", x, -160.0), -160.0, x)
    x = build.select(build.compare("ogt", x, 130.0), 130.0, x)
    shifted = build.binary("fadd", x, _FLOAT_INTEGER)
    fraction = build.binary("fsub", x, build.binary("fsub", shifted, _FLOAT_INTEGER))
    exponent = build.binary("sub", build.bits(shifted), 0x4B400000)
    slope = _polynomial(build, fraction, _EX2)
    power = build.intrinsic("fma", fraction, slope, build.constant(1.0, x))
    half = build.binary("ashr", exponent, 1)
    rest = build.binary("sub", exponent, half)
    scaled = build.binary("fmul", power, _power_of_two(build, half))
    build.returns(build.binary("fmul", scaled, _power_of_two(build, rest)))


def lg2(build: Builder) -> None:
    """log2(x): −∞ at zeros, NaN below."""
    x = build.parameter("float")
    subnormal = build.compare("olt", x, 2.0**-126)
    normal = build.select(subnormal, build.binary("fmul", x, 2.0**23), x)
    bits = build.bits(normal)
    exponent = build.binary("ashr", build.binary("sub", bits, _SQUARE_ROOT_HALF_BITS), 23)
    mantissa = build.binary("sub", bits, build.binary("shl", exponent, 23))
    fraction = build.binary("fsub", build.bitcast(mantissa, "float"), 1.0)
    exponent = build.select(subnormal, build.binary("sub", exponent, 23), exponent)
    slope = _polynomial(build, fraction, _LG2)
    logarithm = build.intrinsic("fma", fraction, slope, build.cast("sitofp", exponent, "float"))
    result = build.select(build.compare("ogt", x, 0.0), logarithm, math.nan)
    result = build.select(build.compare("oeq", x, 0.0), -math.inf, result)
    build.returns(build.select(build.compare("oeq", x, math.inf), math.inf, result))


def _circular(build: Builder, quarter_turns: int) -> tuple[Value, Value]:
    """The argument, and the sine of it after some quarter turns."""
    x = build.parameter("float")
    turns = build.binary("fmul", build.cast("fpext", x, "double"), 2 / math.pi)
    whole = build.intrinsic("roundeven", turns)
    r = build.cast("fptrunc", build.binary("fsub", turns, whole), "float")
    fours = build.intrinsic("roundeven", build.binary("fmul", whole, 0.25))
    small = build.binary("fsub", whole, build.binary("fmul", fours, 4.0))
    quadrant = build.resize(build.bits(build.binary("fadd", small, _DOUBLE_INTEGER)), 32)
    quadrant = build.binary("add", quadrant, quarter_turns)
    square = build.binary("fmul", r, r)
    sine = build.binary("fmul", r, _polynomial(build, square, _SIN))
    cosine = _polynomial(build, square, _COS)
    odd = build.compare("ne", build.binary("and", quadrant, 1), 0)
    value = build.select(odd, cosine, sine)
    sign = build.binary("shl", build.binary("and", quadrant, 2), 30)
    return x, build.bitcast(build.binary("xor", build.bits(value), sign), "float")


def sin(build: Builder) -> None:
    """The sine, reduced in double precision; the argument itself where it is tiny."""
    x, sine = _circular(build, 0)
    tiny = build.compare("olt", build.intrinsic("fabs", x), 2.0**-12)
    build.returns(build.select(tiny, x, sine))


def cos(build: Builder) -> None:
    """The cosine, reduced in double precision."""
    _, cosine = _circular(build, 1)
    build.returns(cosine)


def tanh(build: Builder) -> None:
    """The hyperbolic tangent: a polynomial near zero, through 2^x elsewhere."""
    x = build.parameter("float")
    magnitude = build.intrinsic("fabs", x)
    square = build.binary("fmul", x, x)
    correction = build.binary("fmul", square, _polynomial(build, square, _TANH))
    near = build.intrinsic("fma", x, correction, x)
    power = build.shared("ex2", build.binary("fmul", magnitude, 2 / math.log(2)))
    ratio = build.binary("fdiv", build.constant(2.0, x), build.binary("fadd", power, 1.0))
    far = build.binary("fsub", build.constant(1.0, x), ratio)
    value = build.select(build.compare("olt", magnitude, 0.65), near, far)
    build.returns(build.intrinsic("copysign", value, x))


_FUNCTIONS: Mapping[str, Callable[[Builder], None]] = {
    "ex2": ex2,
    "lg2": lg2,
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
    **directed.FUNCTIONS,
}
_REQUIRES: Mapping[str, frozenset[str]] = {"tanh": frozenset(("ex2",))}


def closure(name: str) -> frozenset[str]:
    """A function and those that it calls."""
    return _REQUIRES.get(name, frozenset()) | {name}


def function(name: str, lanes: int) -> str:
    """The IR of one function."""
    build = Builder(lanes)
    _FUNCTIONS[name](build)
    attributes = "noinline strictfp" if name in directed.FUNCTIONS else "noinline"
    return build.finish(shared_name(name, lanes), attributes=attributes).ir
