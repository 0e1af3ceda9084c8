"""Comparison and selection: setp, set, selp, slct."""

from __future__ import annotations

from collections.abc import Mapping

from . import rounding
from .builder import Builder, Value
from .floating import take_format
from .integer import Definer
from .opcode import SCALARS, Modifiers

_INTEGER_TYPES = (*("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"),)
_FLOAT_TYPES = ("f16", "bf16", "f32", "f64")
_SELECTABLE = (*_INTEGER_TYPES, *_FLOAT_TYPES)
_ORDERED = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_FLOAT_PREDICATES = {
    **_ORDERED,
    "equ": "ueq",
    "neu": "une",
    "ltu": "ult",
    "leu": "ule",
    "gtu": "ugt",
    "geu": "uge",
    "num": "ord",
    "nan": "uno",
}
_UNSIGNED_PREDICATES = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}


def set_predicate(code: Modifiers, build: Builder) -> None:
    """`setp`; with a last part `dual` it also gives the second predicate of `p|q`.

    `.and`, `.or` and `.xor` combine the comparison with one more operand. The second predicate does
    so with the negated comparison; of a packed type it is the comparison of the upper halves.
    """
    dual = code.flag("dual")
    if not code.last.endswith("x2"):
        combine, outcome = _comparison(code, build)
        outcomes = [outcome, build.binary("xor", outcome, -1)] if dual else [outcome]
    elif dual:
        combine, outcomes = _packed_comparison(code, build)
    else:
        raise code.unsupported("a packed comparison gives two predicates")
    code.finish()
    other = build.operand("pred") if combine else None
    for outcome in outcomes:
        build.result(build.binary(combine, outcome, other) if combine and other else outcome)


def _packed_comparison(code: Modifiers, build: Builder) -> tuple[str | None, list[Value]]:
    """The Boolean operator, if any, and the comparisons of the lower and the upper halves."""
    combine = code.choice("and", "or", "xor", default="") or None
    both = _float_comparison(code, build)
    lanes = range(build.lanes)
    if build.lanes == 1:
        return combine, [build.element(both, index) for index in range(2)]
    halves = [build.shuffle(both, both, [2 * lane + index for lane in lanes]) for index in range(2)]
    return combine, halves


def set_register(code: Modifiers, build: Builder) -> None:
    """`set`: all ones, or 1.0 for an f32 destination, where the comparison holds."""
    combine, outcome = _comparison(code, build)
    destination = code.type_name("u32", "s32", "f32")
    code.finish()
    if combine is not None:
        outcome = build.binary(combine, outcome, build.operand("pred"))
    one = 0x3F800000 if destination == "f32" else -1
    build.result(build.select(outcome, build.constant(one, "i32"), 0))


def _comparison(code: Modifiers, build: Builder) -> tuple[str | None, Value]:
    """The Boolean operator, if any, and the comparison of the first two operands."""
    combine = code.choice("and", "or", "xor", default="") or None
    if code.last in _FLOAT_TYPES:
        return combine, _float_comparison(code, build)
    scalar = code.scalar(*_INTEGER_TYPES)
    if scalar.signed:
        prefixes = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
    else:
        prefixes = {"lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge", **_UNSIGNED_PREDICATES}
    predicates = {"eq": "eq", "ne": "ne", **({} if scalar.kind == "b" else prefixes)}
    predicate = code.choice(*predicates)
    a, b = build.operand(scalar.register), build.operand(scalar.register)
    return combine, build.compare(predicates[predicate], a, b)


def _float_comparison(code: Modifiers, build: Builder) -> Value:
    form = take_format(code, *_FLOAT_TYPES, "f16x2", "bf16x2")
    predicate = code.choice(*_FLOAT_PREDICATES)
    flushes = code.flag("ftz")
    if flushes and form.name not in ("f32", "f16", "f16x2"):
        raise code.unsupported(f".ftz does not go with .{form.name}")
    operands = []
    for _ in range(2):
        bits = form.operand(build)
        flushed = rounding.flush_bits(build, bits) if flushes else bits
        operands.append(rounding.widen(build, flushed, form.scalar))
    return build.compare(_FLOAT_PREDICATES[predicate], *operands)


def select(code: Modifiers, build: Builder) -> None:
    """`selp d, a, b, p`."""
    scalar = code.scalar(*_SELECTABLE)
    code.finish()
    a, b = build.operand(scalar.register), build.operand(scalar.register)
    build.result(build.select(build.operand("pred"), a, b))


def select_by_sign(code: Modifiers, build: Builder) -> None:
    """`slct d, a, b, c`: `a` where `c ≥ 0`, else (also for a NaN) `b`."""
    control = code.scalar("s32", "f32")
    name = code.type_name(*_SELECTABLE)
    flushes = code.flag("ftz")
    code.finish()
    if flushes and control.name != "f32":
        raise code.unsupported(".ftz needs an .f32 control")
    register = SCALARS[name].register
    a, b, c = build.operand(register), build.operand(register), build.operand("b32")
    if control.name == "s32":
        keeps = build.compare("sge", c, 0)
    else:
        bits = rounding.flush_bits(build, c) if flushes else c
        keeps = build.compare("oge", build.floats(bits), 0.0)
    build.result(build.select(keeps, a, b))


DEFINERS: Mapping[str, Definer] = {
    "setp": set_predicate,
    "set": set_register,
    "selp": select,
    "slct": select_by_sign,
}
