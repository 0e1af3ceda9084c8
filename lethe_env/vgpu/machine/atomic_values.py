"""What an atomic operation leaves in memory: one lane's value, or those of a whole warp."""

from __future__ import annotations

from .emit import Writer
from .values import Value, constant, like

_CANONICAL_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF}


def updated(
    writer: Writer,
    operation: str,
    type_: str,
    old: Value,
    value: Value,
    desired: Value,
    flushes: bool,
) -> Value:
    """The new value.

    Args:
        writer: where to write.
        operation: as PTX names it.
        type_: PTX type of the value.
        old: what is in memory, by its bits; a scalar or a vector, as all values here.
        value: the first operand; what is expected, for `cas`.
        desired: the second operand of `cas`.
        flushes: whether subnormals of `add.f32` become zero.
    """
    zero = constant(old.type, 0)
    match operation:
        case "add" if "f" in type_:
            return _sum(writer, type_, old, value, flushes)
        case "add":
            return writer.add(old, value)
        case "and" | "or" | "xor":
            return writer.binary(operation, old, value)
        case "exch":
            return value
        case "min" | "max":
            sign = "s" if type_[0] == "s" else "u"
            order = sign + ("lt" if operation == "min" else "gt")
            return writer.select(writer.compare(order, value, old), value, old)
        case "inc":
            wraps = writer.compare("uge", old, value)
            return writer.select(wraps, zero, writer.add(old, 1))
        case "dec":
            wraps = writer.either(
                writer.compare("eq", old, zero), writer.compare("ugt", old, value)
            )
            return writer.select(wraps, value, writer.sub(old, 1))
        case "cas":
            return writer.select(writer.compare("eq", old, value), desired, old)
    raise ValueError(f"no atomic operation {operation}")


def _sum(writer: Writer, type_: str, left: Value, right: Value, flushes: bool) -> Value:
    """The rounded sum of two values by their bits."""
    if type_ == "f64":
        total = _added(writer, [_as(writer, value, "double") for value in (left, right)])
        return _as(writer, total, "i64")
    if type_ == "f32":
        return _sum_of_words(writer, left, right, flushes)
    single = type_.removesuffix("x2")
    if single == type_:
        return _sum_of_halves(writer, single, left, right)
    parts = []
    for shift in (0, 16):
        low = [writer.resize(writer.shift_right(value, shift), "i16") for value in (left, right)]
        part = writer.resize(_sum_of_halves(writer, single, *low), "i32")
        parts.append(writer.shift_left(part, shift))
    return writer.either(*parts)


def _sum_of_words(writer: Writer, left: Value, right: Value, flushes: bool) -> Value:
    values = [_flushed(writer, value) if flushes else value for value in (left, right)]
    total = _added(writer, [_as(writer, value, "float") for value in values])
    bits = _or_nan(writer, total, _as(writer, total, "i32"), "f32")
    return _flushed(writer, bits) if flushes else bits


def _flushed(writer: Writer, bits: Value) -> Value:
    exponent = writer.both(bits, 0x7F800000)
    sign = writer.both(bits, 0x80000000)
    return writer.select(writer.compare("eq", exponent, 0), sign, bits)


def _sum_of_halves(writer: Writer, type_: str, left: Value, right: Value) -> Value:
    """The sum in single precision is exact enough: rounding it once more changes nothing."""
    if type_ == "f16":
        wide = [
            writer.cast("fpext", _as(writer, v, "half"), like(v.type, "float"))
            for v in (left, right)
        ]
    else:
        wide = [
            _as(writer, writer.shift_left(writer.resize(v, "i32"), 16), "float")
            for v in (left, right)
        ]
    total = _added(writer, wide)
    if type_ == "f16":
        bits = _as(writer, writer.cast("fptrunc", total, like(total.type, "half")), "i16")
    else:
        word = _as(writer, total, "i32")
        tie = writer.add(writer.both(writer.shift_right(word, 16), 1), 0x7FFF)
        bits = writer.resize(writer.shift_right(writer.add(word, tie), 16), "i16")
    return _or_nan(writer, total, bits, type_)


def _added(writer: Writer, values: list[Value]) -> Value:
    left, right = values
    return writer.op(left.type, f"fadd {left}, {right.text}")


def _or_nan(writer: Writer, total: Value, bits: Value, type_: str) -> Value:
    """The bits, or those of the canonical NaN where the sum is one."""
    ordered = writer.op(like(total.type, "i1"), f"fcmp ord {total}, {total.text}")
    return writer.select(ordered, bits, constant(bits.type, _CANONICAL_NAN[type_]))


def _as(writer: Writer, value: Value, element: str) -> Value:
    return writer.cast("bitcast", value, like(value.type, element))
