"""`min` and `max` of floats: −0 is below +0; `.NaN` propagates a NaN, otherwise it is dropped."""

from __future__ import annotations

from collections.abc import Mapping

from . import rounding
from .builder import SINGLE, Builder, Value
from .floating import Treatment, take_format
from .integer import Definer
from .opcode import Modifiers


def extremum(code: Modifiers, build: Builder) -> None:
    """`min`, `max` with `.ftz`, `.NaN` and `.xorsign.abs`; of f32 also of three operands."""
    if code.flag("triple"):
        _of_three(code, build)
        return
    form = take_format(code, "f32", "f64", "f16", "f16x2", "bf16", "bf16x2")
    flushes, propagates = code.flag("ftz"), code.flag("NaN")
    by_magnitude = code.flag("xorsign")
    if by_magnitude and not code.flag("abs"):
        raise code.unsupported(".xorsign needs .abs")
    single = form.name == "f16" and code.flag(SINGLE)
    code.finish()
    if flushes and form.name not in ("f32", "f16", "f16x2"):
        raise code.unsupported(f".ftz does not go with .{form.name}")
    if form.name == "f64" and (propagates or by_magnitude):
        raise code.unsupported("f64 has neither .NaN nor .xorsign")
    treatment = Treatment(flushes, single=single)
    a, b = treatment.operand(build, form), treatment.operand(build, form)
    if by_magnitude:
        value = _by_magnitude(build, code.opcode[0], a, b, propagates)
    else:
        value = _extremum(build, code.opcode[0], a, b, propagates)
    treatment.result(build, form, value)


def _of_three(code: Modifiers, build: Builder) -> None:
    """With `.abs` the magnitudes are compared, and one of them is the result."""
    form = take_format(code, "f32")
    flushes, propagates, by_magnitude = code.flag("ftz"), code.flag("NaN"), code.flag("abs")
    code.finish()
    treatment = Treatment(flushes)
    values = [treatment.operand(build, form) for _ in range(3)]
    if by_magnitude:
        values = [build.intrinsic("fabs", value) for value in values]
    value = _extremum(build, code.opcode[0], values[0], values[1], propagates)
    treatment.result(build, form, _extremum(build, code.opcode[0], value, values[2], propagates))


def _extremum(build: Builder, operation: str, a: Value, b: Value, propagates: bool) -> Value:
    name = {"min": "minimum", "max": "maximum"}[operation]
    value = build.intrinsic(name if propagates else f"{name}num", a, b)
    return _canonical(build, value)


def _canonical(build: Builder, value: Value) -> Value:
    bits = rounding.canonical_nan(build, value, build.bits(value))
    return build.bitcast(bits, value.element)


def _by_magnitude(build: Builder, operation: str, a: Value, b: Value, propagates: bool) -> Value:
    """The extremum of the magnitudes with the exclusive or of the signs."""
    bits = build.binary("xor", build.bits(a), build.bits(b))
    sign = build.binary("and", bits, rounding.sign_mask(a.bits))
    magnitudes = (build.intrinsic("fabs", a), build.intrinsic("fabs", b))
    value = _extremum(build, operation, *magnitudes, propagates)
    signed = build.bitcast(build.binary("or", build.bits(value), sign), a.element)
    return _canonical(build, signed)


DEFINERS: Mapping[str, Definer] = {"min": extremum, "max": extremum}
