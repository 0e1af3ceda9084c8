"""Integer arithmetic: add, sub, mul, mad, div, rem, min, max, abs, neg, sad, and carry chains.

A carry chain passes the condition code as a value: `.cc` forms return it as a second, predicate
result, and `addc`, `subc` and `madc` take it as a last, predicate operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .builder import Builder, Value
from .opcode import Modifiers, Scalar

_WORDS = ("u16", "u32", "u64", "s16", "s32", "s64")
_PAIRS = ("u16x2", "s16x2")
_CARRY_WORDS = ("u32", "s32", "u64", "s64")

Definer = Callable[[Modifiers, Builder], None]


def add_or_subtract(code: Modifiers, build: Builder) -> None:
    """`add`, `sub` with `.sat` (s32 only) or `.cc`."""
    operation = code.opcode[0]
    if "cc" in code.opcode:
        carry_chain(code, build)
        return
    if code.last in _PAIRS:
        packed(code, build)
        return
    scalar = code.scalar(*_WORDS)
    saturate = code.flag("sat")
    code.finish()
    if saturate and scalar.name != "s32":
        raise code.unsupported(".sat needs .s32")
    a, b = build.operand(scalar.register), build.operand(scalar.register)
    if saturate:
        build.result(build.intrinsic(f"s{operation}.sat", a, b))
    else:
        build.result(build.binary(operation, a, b))


def packed(code: Modifiers, build: Builder) -> None:
    """`add`, `min`, `max` of two 16-bit integers in a register; `.relu` clamps `s16x2` at zero."""
    operation = code.opcode[0]
    signed = code.type_name(*_PAIRS).startswith("s")
    clamps = operation != "add" and code.flag("relu")
    code.finish()
    if operation == "sub" or (clamps and not signed):
        raise code.unsupported("no such instruction")
    a, b = (build.bitcast(build.operand("b32"), "i16") for _ in range(2))
    if operation == "add":
        value = build.binary("add", a, b)
    else:
        value = build.intrinsic(f"{'s' if signed else 'u'}{operation}", a, b)
    if clamps:
        value = build.intrinsic("smax", value, build.constant(0, value))
    build.result(build.bitcast(value, "i32"))


def carry_chain(code: Modifiers, build: Builder) -> None:
    """`add.cc`, `addc`, `sub.cc`, `subc`: the condition code is a carry or a borrow."""
    operation = code.opcode[0][:3]
    scalar = code.scalar(*_CARRY_WORDS)
    carries_out = code.flag("cc")
    code.finish()
    a, b = build.operand(scalar.register), build.operand(scalar.register)
    carry_in = build.operand("pred") if code.opcode[0].endswith("c") else None
    _with_carry(build, operation, a, b, carry_in, carries_out)


def _with_carry(
    build: Builder, operation: str, a: Value, b: Value, carry_in: Value | None, carries_out: bool
) -> None:
    total = build.binary(operation, a, b)
    wrapped = build.compare("ult", total, a) if operation == "add" else build.compare("ult", a, b)
    if carry_in is not None:
        first = total
        total = build.binary(operation, first, build.resize(carry_in, a.bits))
        predicate = "ult" if operation == "add" else "ugt"
        wrapped = build.binary("or", wrapped, build.compare(predicate, total, first))
    build.result(total)
    if carries_out:
        build.result(wrapped)


def multiply(code: Modifiers, build: Builder) -> None:
    """`mul.lo`, `mul.hi`, `mul.wide`."""
    scalar = code.scalar(*_WORDS)
    half = code.choice("lo", "hi", "wide")
    code.finish()
    build.result(_product(code, build, scalar, half))


def multiply_add(code: Modifiers, build: Builder) -> None:
    """`mad.lo`, `mad.hi`, `mad.wide`, and the carry forms `mad.cc`, `madc`."""
    scalar = code.scalar(*_WORDS)
    half = code.choice("lo", "hi", "wide")
    carries_out = code.flag("cc")
    code.finish()
    carries_in = code.opcode[0] == "madc"
    if (carries_out or carries_in) and (half == "wide" or scalar.name not in _CARRY_WORDS):
        raise code.unsupported("carry needs .lo or .hi of 32 or 64 bits")
    product = _product(code, build, scalar, half)
    addend = build.operand(f"b{product.bits}")
    carry_in = build.operand("pred") if carries_in else None
    _with_carry(build, "add", product, addend, carry_in, carries_out)


def _product(code: Modifiers, build: Builder, scalar: Scalar, half: str) -> Value:
    a, b = build.operand(scalar.register), build.operand(scalar.register)
    if half == "lo":
        return build.binary("mul", a, b)
    if scalar.bits == 64:
        if half == "wide":
            raise code.unsupported(".wide needs 16 or 32 bits")
        return _high_product_64(build, a, b, scalar.signed)
    wide = 2 * scalar.bits
    left, right = (build.resize(value, wide, scalar.signed) for value in (a, b))
    product = build.binary("mul", left, right)
    if half == "wide":
        return product
    return build.resize(build.binary("lshr", product, scalar.bits), scalar.bits)


def _high_product_64(build: Builder, a: Value, b: Value, signed: bool) -> Value:
    """The upper half of a 128-bit product, from 32-bit halves so that it stays in vectors."""
    mask = 0xFFFFFFFF
    (a_low, a_high), (b_low, b_high) = (
        (build.binary("and", value, mask), build.binary("lshr", value, 32)) for value in (a, b)
    )
    low = build.binary("lshr", build.binary("mul", a_low, b_low), 32)
    middle = build.binary("add", build.binary("mul", a_high, b_low), low)
    other = build.binary("mul", a_low, b_high)
    carry = build.binary("add", other, build.binary("and", middle, mask))
    high = build.binary(
        "add", build.binary("mul", a_high, b_high), build.binary("lshr", middle, 32)
    )
    high = build.binary("add", high, build.binary("lshr", carry, 32))
    if not signed:
        return high
    for value, sign_of in ((b, a), (a, b)):
        correction = build.binary("and", value, build.binary("ashr", sign_of, 63))
        high = build.binary("sub", high, correction)
    return high


def divide(code: Modifiers, build: Builder) -> None:
    """`div`, `rem`: a quotient by zero is all ones, a remainder by zero the dividend."""
    scalar = code.scalar(*_WORDS)
    code.finish()
    a, b = build.operand(scalar.register), build.operand(scalar.register)
    quotient = _quotient(build, a, b, scalar.signed)
    by_zero = build.compare("eq", b, 0)
    if code.opcode[0] == "div":
        build.result(build.select(by_zero, -1, quotient))
        return
    remainder = build.binary("sub", a, build.binary("mul", quotient, b))
    build.result(remainder)


def _quotient(build: Builder, a: Value, b: Value, signed: bool) -> Value:
    magnitudes = [
        build.intrinsic("abs", value, flag=False) if signed else value for value in (a, b)
    ]
    divisor = build.select(build.compare("eq", b, 0), 1, magnitudes[1])
    quotient = _unsigned_quotient(build, magnitudes[0], divisor)
    if not signed:
        return quotient
    differ = build.compare("slt", build.binary("xor", a, b), 0)
    return build.select(differ, build.binary("sub", build.constant(0, a), quotient), quotient)


def _unsigned_quotient(build: Builder, a: Value, b: Value) -> Value:
    """Exact: a double's quotient of 32-bit integers cannot round up to the next integer."""
    if a.bits == 64:
        return build.binary("udiv", a, b)
    dividend, divisor = (build.cast("uitofp", value, "double") for value in (a, b))
    return build.cast("fptoui", build.binary("fdiv", dividend, divisor), a.element)


def extremum(code: Modifiers, build: Builder) -> None:
    """`min`, `max` of integers; `.relu` clamps `s32` at zero."""
    if code.last in _PAIRS:
        packed(code, build)
        return
    scalar = code.scalar(*_WORDS)
    clamps = code.flag("relu")
    code.finish()
    if clamps and scalar.name != "s32":
        raise code.unsupported(".relu needs .s32 or .s16x2")
    a, b = build.operand(scalar.register), build.operand(scalar.register)
    prefix = "s" if scalar.signed else "u"
    value = build.intrinsic(f"{prefix}{code.opcode[0]}", a, b)
    if clamps:
        value = build.intrinsic("smax", value, build.constant(0, value))
    build.result(value)


def absolute(code: Modifiers, build: Builder) -> None:
    """`abs`: the most negative integer stays as it is."""
    scalar = code.scalar("s16", "s32", "s64")
    code.finish()
    build.result(build.intrinsic("abs", build.operand(scalar.register), flag=False))


def negate(code: Modifiers, build: Builder) -> None:
    """`neg`, wrapping."""
    scalar = code.scalar("s16", "s32", "s64")
    code.finish()
    a = build.operand(scalar.register)
    build.result(build.binary("sub", build.constant(0, a), a))


def absolute_difference(code: Modifiers, build: Builder) -> None:
    """`sad`: `c + |a − b|`."""
    scalar = code.scalar(*_WORDS)
    code.finish()
    a, b, c = (build.operand(scalar.register) for _ in range(3))
    less = build.compare("slt" if scalar.signed else "ult", a, b)
    difference = build.select(less, build.binary("sub", b, a), build.binary("sub", a, b))
    build.result(build.binary("add", c, difference))


DEFINERS: Mapping[str, Definer] = {
    "add": add_or_subtract,
    "sub": add_or_subtract,
    "addc": carry_chain,
    "subc": carry_chain,
    "mul": multiply,
    "mad": multiply_add,
    "madc": multiply_add,
    "div": divide,
    "rem": divide,
    "min": extremum,
    "max": extremum,
    "abs": absolute,
    "neg": negate,
    "sad": absolute_difference,
}
