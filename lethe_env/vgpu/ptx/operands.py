"""Operands of instructions, read from tokens."""

from __future__ import annotations

import struct
from collections.abc import Callable

from .lexer import Cursor
from .model import (
    Address,
    Dual,
    FloatImmediate,
    Immediate,
    Negated,
    Operand,
    Register,
    Symbol,
    UnsupportedError,
    Vector,
)

Resolve = Callable[[str], Register | Symbol]
"""What a name stands for in the scope of the instruction."""

_WARP_LANES = 32


def operands(cursor: Cursor, resolve: Resolve) -> tuple[Operand, ...]:
    """The operands up to the `;`, which is taken too."""
    found: list[Operand] = []
    while not cursor.accept(";"):
        if found:
            cursor.expect(",")
        found.append(operand(cursor, resolve))
    return tuple(found)


def operand(cursor: Cursor, resolve: Resolve) -> Operand:
    """One operand."""
    kind, text, _ = cursor.peek()
    if kind == "name":
        return _named(cursor, resolve)
    if kind in ("integer", "float") or text == "-":
        return number(cursor)
    if cursor.accept("{"):
        return _vector(cursor, resolve, "}")
    if cursor.accept("("):
        return _vector(cursor, resolve, ")")
    if cursor.accept("["):
        return _address(cursor, resolve)
    if cursor.accept("!"):
        return Negated(_register(cursor, resolve))
    raise cursor.unexpected("a name")


def _named(cursor: Cursor, resolve: Resolve) -> Operand:
    if cursor.accept("WARP_SZ"):
        return Immediate(_WARP_LANES)
    found = resolve(cursor.expect_kind("name"))
    if cursor.accept("|"):
        if not isinstance(found, Register):
            raise cursor.unexpected("two registers around `|`")
        return Dual(found, _register(cursor, resolve))
    return found


def number(cursor: Cursor) -> Immediate | FloatImmediate:
    """An integer or floating literal, with its sign."""
    negative = cursor.accept("-")
    if cursor.peek().kind == "float":
        return _float(cursor.take().text, negative)
    value = integer_value(cursor.expect_kind("integer"))
    return Immediate(-value if negative else value)


def integer_value(text: str) -> int:
    """The value of an unsigned literal: decimal, `0x…`, `0b…` or octal `0…`, with or without U."""
    digits = text.removesuffix("U").lower()
    if digits.startswith(("0x", "0b")):
        return int(digits, 0)
    if digits.startswith("0"):
        return _octal(digits)
    return int(digits)


def _octal(digits: str) -> int:
    if set(digits) & set("89"):
        raise UnsupportedError(f"the literal {digits} is octal by its leading zero, yet has 8 or 9")
    return int(digits, 8)


def _float(text: str, negative: bool) -> FloatImmediate:
    prefix = text[:2].lower()
    if prefix == "0f":
        return FloatImmediate(int(text[2:], 16) ^ (negative << 31), 32)
    if prefix == "0d":
        return FloatImmediate(int(text[2:], 16) ^ (negative << 63), 64)
    (bits,) = struct.unpack("<Q", struct.pack("<d", float(text)))
    return FloatImmediate(bits ^ (negative << 63), 64)


def _register(cursor: Cursor, resolve: Resolve) -> Register:
    found = resolve(cursor.expect_kind("name"))
    if not isinstance(found, Register):
        raise cursor.unexpected(f"a register in place of `{found.name}`")
    return found


def _vector(cursor: Cursor, resolve: Resolve, close: str) -> Vector:
    items: list[Operand] = []
    while not cursor.accept(close):
        if items:
            cursor.expect(",")
        items.append(operand(cursor, resolve))
    return Vector(tuple(items))


def _address(cursor: Cursor, resolve: Resolve) -> Address:
    base = operand(cursor, resolve)
    if not isinstance(base, Register | Symbol | Immediate):
        raise cursor.unexpected("an address that begins with a register, a symbol or an integer")
    offset = _offset(cursor)
    further: list[Operand] = []
    while cursor.accept(","):
        further.append(operand(cursor, resolve))
    cursor.expect("]")
    return Address(base, offset, tuple(further))


def _offset(cursor: Cursor) -> int:
    if not cursor.accept("+") and not cursor.sees("-"):
        return 0
    value = number(cursor)
    if not isinstance(value, Immediate):
        raise cursor.unexpected("an integer offset")
    return value.value
