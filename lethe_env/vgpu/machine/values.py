"""LLVM values and types as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LANES = 32
"""Lanes of a warp; every vector value has this many elements unless its type says otherwise."""


@dataclass(frozen=True, slots=True)
class Value:
    """An LLVM value: a name or a constant, with its type."""

    type: str
    text: str

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def vector(element: str, count: int = LANES) -> str:
    """The vector type with `count` elements."""
    return f"<{count} x {element}>"


def is_vector(type_: str) -> bool:
    """Whether a type is a vector."""
    return type_.startswith("<")


def element_of(type_: str) -> str:
    """The element type of a vector, or the type itself."""
    return type_[1:-1].split(" x ")[1] if is_vector(type_) else type_


def count_of(type_: str) -> int:
    """The number of elements of a vector type; 1 for a scalar."""
    return int(type_[1:].split(" x ")[0]) if is_vector(type_) else 1


def like(type_: str, element: str) -> str:
    """The type of the same shape with another element."""
    return vector(element, count_of(type_)) if is_vector(type_) else element


def constant(type_: str, value: int) -> Value:
    """An integer constant, splat over a vector; taken modulo the width."""
    element = element_of(type_)
    bits = int(element[1:])
    value &= (1 << bits) - 1
    if bits == 1:
        text = "true" if value else "false"
    else:
        text = str(value - (1 << bits) if value >> (bits - 1) else value)
    return Value(type_, f"splat ({element} {text})" if is_vector(type_) else text)


def constants(element: str, values: Sequence[int]) -> Value:
    """A vector constant by its elements."""
    inside = ", ".join(str(constant(element, value)) for value in values)
    return Value(vector(element, len(values)), f"<{inside}>")


def i32(value: int) -> Value:
    """A 32-bit constant."""
    return constant("i32", value)


def i64(value: int) -> Value:
    """A 64-bit constant."""
    return constant("i64", value)


def struct_type(types: Sequence[str]) -> str:
    """The LLVM struct of several types; a single type stays as it is."""
    return types[0] if len(types) == 1 else f"{{{', '.join(types)}}}"


def declared(parameters: str) -> list[tuple[str, str]]:
    """Types and names of parameters, given as LLVM writes them: `i64 count, ptr place`."""
    parts = (part.strip().rpartition(" ") for part in parameters.split(","))
    return [(type_, name) for type_, _, name in parts]
