"""Declarations of parameters, variables and registers, read from tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .lexer import Cursor
from .model import Immediate, Parameter, UnsupportedError, Variable
from .operands import integer_value, number

TYPES = {
    f".{kind}{bits}": bits // 8
    for kind, widths in {
        "b": (8, 16, 32, 64, 128),
        "u": (8, 16, 32, 64),
        "s": (8, 16, 32, 64),
        "f": (16, 32, 64),
    }.items()
    for bits in widths
}
"""Bytes of each type that a declaration may have."""

SPACES = (".global", ".const", ".shared", ".local", ".param")


@dataclass(frozen=True, slots=True)
class _Declared:
    type: str
    align_bytes: int
    pointer: bool
    name: str
    count: int

    @property
    def size_bytes(self) -> int:
        return TYPES[self.type] * self.count


def parameters(cursor: Cursor) -> tuple[Parameter, ...]:
    """The parenthesised parameter list of an entry; there may be none."""
    found: list[Parameter] = []
    end_bytes = 0
    if not cursor.accept("("):
        return ()
    while not cursor.accept(")"):
        if found:
            cursor.expect(",")
        cursor.expect(".param")
        declared = _declared(cursor)
        offset_bytes = math.ceil(end_bytes / declared.align_bytes) * declared.align_bytes
        end_bytes = offset_bytes + declared.size_bytes
        found.append(
            Parameter(
                name=declared.name,
                type=declared.type[1:],
                size_bytes=declared.size_bytes,
                offset_bytes=offset_bytes,
                pointer=declared.pointer,
            )
        )
    return tuple(found)


def variable(cursor: Cursor) -> Variable:
    """A declaration such as `.global .align 4 .b8 table[8] = {…};` from its state space on."""
    space = cursor.take().text[1:]
    declared = _declared(cursor)
    data = b""
    if cursor.accept("="):
        data = _initialiser(cursor, TYPES[declared.type]).ljust(declared.size_bytes, b"\0")
    cursor.expect(";")
    return Variable(
        name=declared.name,
        space=space,
        size_bytes=declared.size_bytes,
        align_bytes=declared.align_bytes,
        data=data,
    )


def registers(cursor: Cursor) -> Iterator[tuple[str, str]]:
    """Name and type of every register in a declaration, from `.reg` to `;`."""
    cursor.expect(".reg")
    kind = cursor.expect_kind("directive")
    if kind != ".pred" and kind not in TYPES:
        raise UnsupportedError(f"registers of the type {kind}")
    while True:
        name = cursor.expect_kind("name")
        if cursor.accept("<"):
            count = integer_value(cursor.expect_kind("integer"))
            cursor.expect(">")
            yield from ((f"{name}{index}", kind[1:]) for index in range(count))
        else:
            yield name, kind[1:]
        if cursor.accept(";"):
            return
        cursor.expect(",")


def _declared(cursor: Cursor) -> _Declared:
    align_bytes, kind, pointer = 0, "", False
    while cursor.peek().kind == "directive":
        word = cursor.take().text
        if word == ".align":
            alignment = integer_value(cursor.expect_kind("integer"))
            align_bytes = align_bytes if pointer else alignment
        elif word == ".ptr":
            pointer = True
        elif word in TYPES and not kind:
            kind = word
        elif not (pointer and word in SPACES):
            raise UnsupportedError(f"`{word}` in a declaration")
    if not kind:
        raise cursor.unexpected("a type")
    name = cursor.expect_kind("name")
    return _Declared(kind, align_bytes or TYPES[kind], pointer, name, _count(cursor))


def _count(cursor: Cursor) -> int:
    """Elements of an array, from its `[…]`; none for `[]`, whose size the launch gives."""
    count = 1
    while cursor.accept("["):
        if cursor.accept("]"):
            return 0
        count *= integer_value(cursor.expect_kind("integer"))
        cursor.expect("]")
    return count


def _initialiser(cursor: Cursor, element_bytes: int) -> bytes:
    if not cursor.accept("{"):
        return _element(cursor, element_bytes)
    data = b""
    while not cursor.accept("}"):
        if data:
            cursor.expect(",")
        data += _initialiser(cursor, element_bytes)
    return data


def _element(cursor: Cursor, element_bytes: int) -> bytes:
    if cursor.peek().kind == "name":
        raise UnsupportedError(f"the address `{cursor.peek().text}` as an initial value")
    value = number(cursor)
    if isinstance(value, Immediate):
        return (value.value % 256**element_bytes).to_bytes(element_bytes, "little")
    if value.width != 8 * element_bytes:
        raise UnsupportedError(f"a {value.width}-bit initial value in {element_bytes} bytes")
    return value.bits.to_bytes(element_bytes, "little")
