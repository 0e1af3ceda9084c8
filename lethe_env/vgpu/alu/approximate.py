"""`.approx` and `.full` instructions: computed to f32 accuracy, inside PTX's error bounds."""

from __future__ import annotations

from collections.abc import Mapping

from . import rounding, shared
from .builder import Builder, Value
from .floating import Format, Treatment, take_format, take_treatment
from .integer import Definer
from .opcode import Modifiers

_LOW_WORD = 0xFFFFFFFF
_GROSS_NAN = 0x7FFFFFFF00000000


def definer(opcode: tuple[str, ...]) -> Definer | None:
    """The definer of an approximate instruction; None where the opcode is not one."""
    if "approx" in opcode or "full" in opcode:
        return _DEFINERS.get(opcode[0])
    return None


def function_of_float(code: Modifiers, build: Builder) -> None:
    """`lg2`, `sin`, `cos` of f32; `ex2` and `tanh` also of 16-bit formats."""
    code.choice("approx")
    name = code.opcode[0]
    narrow = {
        "ex2": ("f16", "f16x2", "bf16", "bf16x2"),
        "tanh": ("f16", "f16x2", "bf16", "bf16x2"),
    }.get(name, ())
    form = take_format(code, "f32", *narrow)
    flushes = code.flag("ftz")
    code.finish()
    if name == "tanh" and flushes:
        raise code.unsupported("tanh has no .ftz")
    if form.scalar.bits == 16:
        if name == "ex2" and flushes != (form.scalar.kind == "bf"):
            raise code.unsupported(".ftz goes with .bf16, and only with it")
        _halves(build, name, form, flushes)
        return
    treatment = Treatment(flushes)
    treatment.result(build, form, _call(build, name, treatment.operand(build, form)))


def _call(build: Builder, name: str, value: Value) -> Value:
    build.requires.update(shared.closure(name))
    return build.shared(name, value)


def _halves(build: Builder, name: str, form: Format, flushes: bool) -> None:
    """One or two 16-bit numbers per register, each computed in f32."""
    raw = build.operand("b32" if form.packed else "b16")
    total: Value | None = None
    for index in range(2 if form.packed else 1):
        bits = build.resize(build.binary("lshr", raw, 16 * index), 16)
        argument = rounding.widen(build, bits, form.scalar)
        value = _call(build, name, rounding.flush(build, argument) if flushes else argument)
        value = rounding.flush(build, value) if flushes else value
        part = build.resize(rounding.narrow(build, value, form.scalar), raw.bits)
        part = build.binary("shl", part, 16 * index)
        total = part if total is None else build.binary("or", total, part)
    build.result(total or raw)


def divide(code: Modifiers, build: Builder) -> None:
    """`div.full` is the rounded quotient; `div.approx` gives 0 for divisors above 2¹²⁶."""
    kind = code.choice("full", "approx")
    form = take_format(code, "f32")
    treatment = take_treatment(code, form)
    code.finish()
    a, b = treatment.operand(build, form), treatment.operand(build, form)
    quotient = build.binary("fdiv", a, b)
    if kind == "approx":
        magnitude = build.intrinsic("fabs", b)
        large = build.binary(
            "and",
            build.compare("ogt", magnitude, 2.0**126),
            build.compare("olt", magnitude, float("inf")),
        )
        zero = build.intrinsic("copysign", build.constant(0.0, b), b)
        quotient = build.select(large, build.binary("fmul", a, zero), quotient)
    treatment.result(build, form, quotient)


def root_or_reciprocal(code: Modifiers, build: Builder) -> None:
    """`sqrt`, `rsqrt`, `rcp`: the IEEE operations; `rcp` and `rsqrt` of f64 may be gross."""
    code.choice("approx")
    name = code.opcode[0]
    form = take_format(code, "f32", *(() if name == "sqrt" else ("f64",)))
    flushes = code.flag("ftz")
    code.finish()
    if form.name == "f64" and (flushes or name == "rcp"):
        if not flushes:
            raise code.unsupported("needs .ftz with .f64")
        _gross(build, name)
        return
    treatment = Treatment(flushes)
    treatment.result(build, form, _exact(build, name, treatment.operand(build, form)))


def _exact(build: Builder, name: str, a: Value) -> Value:
    if name == "rcp":
        return build.binary("fdiv", build.constant(1.0, a), a)
    root = build.intrinsic("sqrt", a)
    return root if name == "sqrt" else build.binary("fdiv", build.constant(1.0, a), root)


def _gross(build: Builder, name: str) -> None:
    """f64 with a 20-bit mantissa in and out: the low words are ignored and zero."""
    high = build.binary("and", build.operand("b64"), ~_LOW_WORD)
    argument = build.floats(rounding.flush_bits(build, high))
    value = _exact(build, name, argument)
    rounded = build.binary("add", rounding.flush_bits(build, build.bits(value)), 1 << 31)
    cut = build.binary("and", rounded, ~_LOW_WORD)
    unordered = build.compare("uno", value, value)
    build.result(build.select(unordered, _GROSS_NAN, cut))


_DEFINERS: Mapping[str, Definer] = {
    "ex2": function_of_float,
    "lg2": function_of_float,
    "sin": function_of_float,
    "cos": function_of_float,
    "tanh": function_of_float,
    "div": divide,
    "sqrt": root_or_reciprocal,
    "rsqrt": root_or_reciprocal,
    "rcp": root_or_reciprocal,
}
