"""IEEE arithmetic: add, sub, mul, fma, div, rcp, sqrt, neg, abs, copysign, testp.

f32 and f64 results that are NaN keep whatever payload the host gives: only that they are NaN is
promised. f16 and bf16 results are the canonical NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import directed, rounding
from .builder import SINGLE, Builder, Value
from .integer import Definer
from .opcode import SCALARS, Modifiers, Scalar

ROUNDINGS = ("rn", "rz", "rm", "rp")
_FLUSHABLE = ("f32", "f16", "f16x2", "f32x2")


@dataclass(frozen=True, slots=True)
class Format:
    """The operand type of a floating-point instruction."""

    name: str
    scalar: Scalar
    packed: bool

    def operand(self, build: Builder) -> Value:
        """The next operand's bits, one element per number."""
        bits = self.scalar.bits
        raw = build.operand(f"b{2 * bits}" if self.packed else self.scalar.register)
        return build.bitcast(raw, f"i{bits}") if self.packed else raw

    def result(self, build: Builder, bits: Value) -> None:
        """Give a result by its bits, one element per number."""
        build.result(build.bitcast(bits, f"i{2 * bits.bits}") if self.packed else bits)


def take_format(code: Modifiers, *allowed: str) -> Format:
    """Consume the operand type."""
    name = code.type_name(*allowed)
    return Format(name, SCALARS[name.removesuffix("x2")], name.endswith("x2"))


@dataclass(frozen=True, slots=True)
class Treatment:
    """What surrounds the arithmetic proper: `.ftz`, `.sat`, `.relu`."""

    flushes: bool
    saturates: bool = False
    clamps: bool = False
    single: bool = False
    """Whether operands are `SINGLE`, and the result is that as well as bits."""

    def operand(self, build: Builder, form: Format) -> Value:
        """The next operand, flushed, as an f32 or f64."""
        if self.single:
            return build.operand(SINGLE)
        bits = form.operand(build)
        if self.flushes:
            bits = rounding.flush_bits(build, bits)
        return rounding.widen(build, bits, form.scalar)

    def adjust(self, build: Builder, value: Value) -> Value:
        """`.sat` and `.relu`."""
        if self.saturates:
            value = rounding.saturate(build, value)
        if self.clamps:
            value = rounding.clamp_negative(build, value)
        return value

    def result(self, build: Builder, form: Format, value: Value) -> None:
        """Give an f32 or f64 as the result, rounded to the format."""
        value = self.adjust(build, value)
        bits = rounding.narrow(build, value, form.scalar)
        form.result(build, rounding.flush_bits(build, bits) if self.flushes else bits)
        if self.single:
            build.result_single(build.cast("fpext", build.cast("fptrunc", value, "half"), "float"))


def take_treatment(code: Modifiers, form: Format, relu: bool = False) -> Treatment:
    """Consume `.ftz`, `.sat`, where allowed `.relu`, and `single` of f16."""
    treatment = Treatment(
        code.flag("ftz"),
        code.flag("sat"),
        relu and code.flag("relu"),
        form.name == "f16" and code.flag(SINGLE),
    )
    if treatment.flushes and form.name not in _FLUSHABLE:
        raise code.unsupported(f".ftz does not go with .{form.name}")
    if treatment.saturates and form.name not in _FLUSHABLE:
        raise code.unsupported(f".sat does not go with .{form.name}")
    return treatment


def _take_rounding(code: Modifiers, form: Format, default: str | None = "rn") -> str:
    mode = code.choice(*ROUNDINGS, default=default)
    if mode != "rn" and form.scalar.bits == 16:
        raise code.unsupported(f".{mode} does not go with .{form.name}")
    return mode


_ARITHMETIC_TYPES = ("f32", "f32x2", "f64", "f16", "f16x2", "bf16", "bf16x2")


def add_subtract_multiply(code: Modifiers, build: Builder) -> None:
    """`add`, `sub`, `mul`."""
    operation = code.opcode[0]
    form = take_format(code, *_ARITHMETIC_TYPES)
    mode = _take_rounding(code, form)
    treatment = take_treatment(code, form)
    code.finish()
    a, b = treatment.operand(build, form), treatment.operand(build, form)
    if mode != "rn" and form.scalar.bits == 64:
        value = directed.apply(build, f"f{operation}", mode, a, b)
    elif mode == "rn":
        value = build.binary(f"f{operation}", a, b)
    elif operation == "mul":
        product = build.binary("fmul", rounding.to_double(build, a), rounding.to_double(build, b))
        value = rounding.double_to_float(build, product, mode)
    else:
        value = _directed_sum(build, a, build.negate(b) if operation == "sub" else b, mode)
    treatment.result(build, form, value)


def _directed_sum(build: Builder, a: Value, b: Value, mode: str) -> Value:
    """The sum of doubles or floats as an f32."""
    x, y = rounding.to_double(build, a), rounding.to_double(build, b)
    total = rounding.add_to_odd(build, x, y)
    total = rounding.signed_zero(build, x, y, total, mode)
    return rounding.double_to_float(build, total, mode)


def fused_multiply_add(code: Modifiers, build: Builder) -> None:
    """`fma` (and `mad` of floats), rounded once."""
    form = take_format(code, *_ARITHMETIC_TYPES)
    mode = _take_rounding(code, form, default=None)
    treatment = take_treatment(code, form, relu=form.scalar.bits == 16)
    code.finish()
    a, b, c = (treatment.operand(build, form) for _ in range(3))
    if form.scalar.bits > 16 and mode == "rn":
        treatment.result(build, form, build.intrinsic("fma", a, b, c))
        return
    if form.scalar.bits == 64:
        treatment.result(build, form, directed.apply(build, "fma", mode, a, b, c))
        return
    x, y, z = (rounding.to_double(build, value) for value in (a, b, c))
    product = build.binary("fmul", x, y)
    if form.scalar.bits > 16:
        treatment.result(build, form, _directed_sum(build, product, c, mode))
        return
    total = rounding.add_to_odd(build, product, z)
    treatment.result(build, form, rounding.double_to_float(build, total, "odd"))


def divide(code: Modifiers, build: Builder) -> None:
    """`div.rn`, `.rz`, `.rm`, `.rp`."""
    form = take_format(code, "f32", "f64")
    mode = _take_rounding(code, form, default=None)
    treatment = take_treatment(code, form)
    code.finish()
    a, b = treatment.operand(build, form), treatment.operand(build, form)
    treatment.result(build, form, _quotient(build, a, b, mode))


def reciprocal(code: Modifiers, build: Builder) -> None:
    """`rcp.rn`, `.rz`, `.rm`, `.rp`."""
    form = take_format(code, "f32", "f64")
    mode = _take_rounding(code, form, default=None)
    treatment = take_treatment(code, form)
    code.finish()
    a = treatment.operand(build, form)
    treatment.result(build, form, _quotient(build, build.constant(1.0, a), a, mode))


def _quotient(build: Builder, a: Value, b: Value, mode: str) -> Value:
    if mode == "rn":
        return build.binary("fdiv", a, b)
    if a.bits == 64:
        return directed.apply(build, "fdiv", mode, a, b)
    x, y = rounding.to_double(build, a), rounding.to_double(build, b)
    quotient = build.binary("fdiv", x, y)
    remainder = build.intrinsic("fma", build.negate(quotient), y, x)
    error = build.binary("fmul", remainder, build.intrinsic("copysign", _one(build, y), y))
    odd = rounding.step_float(build, quotient, error, "odd")
    return rounding.double_to_float(build, odd, mode)


def _one(build: Builder, like: Value) -> Value:
    return build.constant(1.0, like)


def square_root(code: Modifiers, build: Builder) -> None:
    """`sqrt.rn`, `.rz`, `.rm`, `.rp`."""
    form = take_format(code, "f32", "f64")
    mode = _take_rounding(code, form, default=None)
    treatment = take_treatment(code, form)
    code.finish()
    a = treatment.operand(build, form)
    if mode == "rn":
        treatment.result(build, form, build.intrinsic("sqrt", a))
        return
    if form.scalar.bits == 64:
        treatment.result(build, form, directed.apply(build, "sqrt", mode, a))
        return
    x = rounding.to_double(build, a)
    root = build.intrinsic("sqrt", x)
    error = build.intrinsic("fma", build.negate(root), root, x)
    odd = rounding.step_float(build, root, error, "odd")
    treatment.result(build, form, rounding.double_to_float(build, odd, mode))


def change_sign(code: Modifiers, build: Builder) -> None:
    """`neg`, `abs`: on the bits, so a NaN stays as it is."""
    form = take_format(code, *_ARITHMETIC_TYPES)
    flushes = code.flag("ftz")
    if flushes and form.name not in _FLUSHABLE:
        raise code.unsupported(f".ftz does not go with .{form.name}")
    code.finish()
    bits = form.operand(build)
    if flushes:
        bits = rounding.flush_bits(build, bits)
    if code.opcode[0] == "neg":
        form.result(build, build.binary("xor", bits, rounding.sign_mask(bits.bits)))
    else:
        form.result(build, build.binary("and", bits, rounding.magnitude_mask(bits.bits)))


def copy_sign(code: Modifiers, build: Builder) -> None:
    """`copysign d, a, b`: the magnitude of `b` with the sign of `a`."""
    scalar = code.scalar("f32", "f64")
    code.finish()
    a, b = build.operand(scalar.register), build.operand(scalar.register)
    sign = build.binary("and", a, rounding.sign_mask(scalar.bits))
    magnitude = build.binary("and", b, rounding.magnitude_mask(scalar.bits))
    build.result(build.binary("or", sign, magnitude))


def test_property(code: Modifiers, build: Builder) -> None:
    """`testp`: the class of a number."""
    scalar = code.scalar("f32", "f64")
    properties = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    wanted = code.choice(*properties)
    code.finish()
    bits = build.operand(scalar.register)
    magnitude = build.binary("and", bits, rounding.magnitude_mask(scalar.bits))
    infinity = {32: 0x7F800000, 64: 0x7FF0000000000000}[scalar.bits]
    normal = rounding.SMALLEST_NORMAL_BITS["float" if scalar.bits == 32 else "double"]
    below, least = build.compare, magnitude
    if wanted == "normal":
        offset = build.binary("sub", least, normal)
        build.result(below("ult", offset, infinity - normal))
    elif wanted == "subnormal":
        build.result(below("ult", build.binary("sub", least, 1), normal - 1))
    else:
        predicate = {"finite": "ult", "infinite": "eq", "number": "ule", "notanumber": "ugt"}
        build.result(below(predicate[wanted], least, infinity))


DEFINERS: Mapping[str, Definer] = {
    "add": add_subtract_multiply,
    "sub": add_subtract_multiply,
    "mul": add_subtract_multiply,
    "fma": fused_multiply_add,
    "mad": fused_multiply_add,
    "div": divide,
    "rcp": reciprocal,
    "sqrt": square_root,
    "neg": change_sign,
    "abs": change_sign,
    "copysign": copy_sign,
    "testp": test_property,
}
