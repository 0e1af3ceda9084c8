"""`cvt` to and from pairs of 8-bit floats: `e4m3x2` and `e5m2x2`.

e5m2 is the upper half of an f16. e4m3 has no infinity, and 0x7F and 0xFF are its NaNs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import rounding
from .builder import Builder, Value
from .opcode import SCALARS, Modifiers

_NAN = 0x7F


@dataclass(frozen=True, slots=True)
class _Format:
    fraction_bits: int
    bias: int
    largest: float

    @property
    def quantum(self) -> float:
        """Distance between subnormal numbers."""
        return 2.0 ** (1 - self.bias - self.fraction_bits)


FORMATS: Mapping[str, _Format] = {
    "e4m3x2": _Format(3, 7, 448.0),
    "e5m2x2": _Format(2, 15, 57344.0),
}


def convert(code: Modifiers, build: Builder) -> None:
    """`cvt.rn.f16x2.<format>` and `cvt.rn.satfinite.<format>` from two f32 or an f16x2."""
    if code.last in FORMATS:
        _widen(code, build)
    else:
        _narrow(code, build)


def _widen(code: Modifiers, build: Builder) -> None:
    name = code.type_name(*FORMATS)
    code.type_name("f16x2")
    code.choice("rn")
    relu = code.flag("relu")
    code.finish()
    raw = build.operand("b16")
    halves = []
    for index in range(2):
        byte = build.resize(build.binary("lshr", raw, 8 * index), 8)
        value = _from_e5m2(build, byte) if name == "e5m2x2" else _from_e4m3(build, byte)
        if relu:
            value = rounding.clamp_negative(build, value)
        halves.append(build.resize(rounding.narrow(build, value, SCALARS["f16"]), 32))
    build.result(build.binary("or", build.binary("shl", halves[1], 16), halves[0]))


def _from_e5m2(build: Builder, byte: Value) -> Value:
    bits = build.binary("shl", build.resize(byte, 16), 8)
    return rounding.widen(build, bits, SCALARS["f16"])


def _from_e4m3(build: Builder, byte: Value) -> Value:
    """An f16 with the same bits, whose exponent is short of the right one by eight."""
    wide = build.resize(byte, 16)
    magnitude = build.binary("shl", build.binary("and", wide, 0x7F), 7)
    sign = build.binary("shl", build.binary("and", wide, 0x80), 8)
    small = rounding.widen(build, build.binary("or", magnitude, sign), SCALARS["f16"])
    value = build.binary("fmul", small, 256.0)
    unordered = build.compare("eq", build.binary("and", wide, 0x7F), _NAN)
    return build.select(unordered, float("nan"), value)


def _narrow(code: Modifiers, build: Builder) -> None:
    source = code.type_name("f32", "f16x2")
    form = FORMATS[code.type_name(*FORMATS)]
    code.choice("rn")
    code.choice("satfinite")
    relu = code.flag("relu")
    code.finish()
    upper, lower = _operands(build, source)
    parts = []
    for value in (upper, lower):
        kept = rounding.clamp_negative(build, value) if relu else value
        parts.append(_rounded(build, kept, form))
    build.result(build.resize(build.binary("or", build.binary("shl", parts[0], 8), parts[1]), 16))


def _operands(build: Builder, source: str) -> tuple[Value, Value]:
    """Of two f32 the first goes to the upper half, as that of a packed operand does."""
    if source == "f32":
        first, second = (build.floats(build.operand("b32")) for _ in range(2))
        return first, second
    raw = build.operand("b32")
    halves = [build.resize(build.binary("lshr", raw, shift), 16) for shift in (16, 0)]
    upper, lower = (rounding.widen(build, half, SCALARS["f16"]) for half in halves)
    return upper, lower


def _rounded(build: Builder, value: Value, form: _Format) -> Value:
    """An f32 to nearest even, beyond the largest number to that, as 32 bits."""
    sign = build.binary("and", build.binary("lshr", build.bits(value), 24), 0x80)
    limit = build.constant(form.largest, value)
    magnitude = build.intrinsic("minnum", build.intrinsic("fabs", value), limit)
    bits = build.bits(magnitude)
    drop = 23 - form.fraction_bits
    odd = build.binary("and", build.binary("lshr", bits, drop), 1)
    half = (1 << (drop - 1)) - 1
    kept = build.binary("lshr", build.binary("add", build.binary("add", bits, odd), half), drop)
    normal = build.binary("sub", kept, (127 - form.bias) << form.fraction_bits)
    # Adding a number whose last place is the quantum rounds to it.
    anchor = form.quantum * 2.0**23
    shifted = build.bits(build.binary("fadd", magnitude, anchor))
    anchor_bits = build.bits(build.constant(anchor, magnitude))
    subnormal = build.binary("sub", shifted, anchor_bits)
    small = build.compare("olt", magnitude, 2.0 ** (1 - form.bias))
    rounded = build.binary("or", build.select(small, subnormal, normal), sign)
    return build.select(build.compare("uno", value, value), _NAN, rounded)
