"""Builds one LLVM IR function over lanes, line by line."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_MANGLED = {"half": "f16", "float": "f32", "double": "f64"}
_FLOAT_OF_BITS = {16: "half", 32: "float", 64: "double"}
_BITS_OF_FLOAT = {"half": 16, "float": 32, "double": 64}

SINGLE = "single"
"""Type of an operand or a result that is a half as the f32 of its value, any NaN for a NaN."""


@dataclass(frozen=True, slots=True)
class Definition:
    """An LLVM IR function for one opcode."""

    name: str
    """The function's name without its `@`; quote it in IR."""
    ir: str
    """The text of one `define internal`."""
    operand_types: tuple[str, ...]
    """Register types of the parameters: `pred`, `b16`, `b32`, `b64`; or `SINGLE`."""
    result_types: tuple[str, ...]
    """Those of the results; several are returned as one struct."""
    requires: frozenset[str] = frozenset()
    """Names of the shared functions that must be in the module (`library.prelude`)."""


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value: `count` elements, a plain scalar where `count` is 1."""

    text: str
    element: str
    count: int

    @property
    def type(self) -> str:
        """The LLVM type."""
        return vector_type(self.element, self.count)

    @property
    def typed(self) -> str:
        """Type and name, as an argument is written."""
        return f"{self.type} {self.text}"

    @property
    def bits(self) -> int:
        """Width of one element."""
        return bits_of(self.element)


def vector_type(element: str, count: int) -> str:
    """`i32` for one element, `<32 x i32>` for 32."""
    return element if count == 1 else f"<{count} x {element}>"


def bits_of(element: str) -> int:
    """Width in bits of an LLVM element type."""
    return _BITS_OF_FLOAT.get(element) or int(element[1:])


def float_element(bits: int) -> str:
    """The LLVM floating-point type of a width."""
    return _FLOAT_OF_BITS[bits]


def float_bits(value: float, element: str) -> int:
    """The bits of a constant in an LLVM floating-point type, rounded to nearest."""
    code, integer = {"half": ("e", "H"), "float": ("f", "I"), "double": ("d", "Q")}[element]
    return struct.unpack(f"<{integer}", struct.pack(f"<{code}", value))[0]


def _literal(value: float, element: str) -> str:
    """A constant in LLVM's spelling: floats are written as the bits of a double."""
    if element.startswith("i"):
        return str(int(value))
    if element == "half":
        return f"0xH{float_bits(value, element):04X}"
    rounded = value
    if element == "float":
        rounded = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{float_bits(rounded, 'double'):016X}"


class Builder:
    """The body of one function.

    Operands are asked for in the order of the instruction's sources and results given in the order
    of its destinations, both as raw register bits.

    Args:
        lanes: 32 for a warp, 1 for warp-uniform code.
    """

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.operand_types: list[str] = []
        self.result_types: list[str] = []
        self.requires: set[str] = set()
        self._parameters: list[Value] = []
        self._lines: list[str] = []
        self._results: list[Value] = []
        self._names = 0
        self._called: list[str] = []

    def operand(self, register: str) -> Value:
        """The next parameter, of a register type or `SINGLE`."""
        self.operand_types.append(register)
        element = {"pred": "i1", SINGLE: "float"}.get(register)
        return self.parameter(element or f"i{register[1:]}")

    def parameter(self, element: str) -> Value:
        """The next parameter, of an LLVM element type."""
        value = Value(f"%operand{len(self._parameters)}", element, self.lanes)
        self._parameters.append(value)
        return value

    def result(self, value: Value) -> None:
        """The next result, whose register type is that of the value's width."""
        register = "pred" if value.element == "i1" else f"b{value.bits}"
        self.result_types.append(register)
        self.returns(self.bits(value))

    def result_single(self, value: Value) -> None:
        """The next result, an f32 that stands for a half."""
        self.result_types.append(SINGLE)
        self.returns(value)

    def returns(self, value: Value) -> None:
        """The next result, as it is."""
        self._results.append(value)

    def emit(self, expression: str, element: str, count: int) -> Value:
        """Append `name = expression`."""
        name = f"%v{self._names}"
        self._names += 1
        self._lines.append(f"  {name} = {expression}")
        return Value(name, element, count)

    def constant(self, value: float, like: Value | str) -> Value:
        """A constant in every lane, of an element type or of another value's type."""
        element, count = (like, self.lanes) if isinstance(like, str) else (like.element, like.count)
        text = ("true" if value else "false") if element == "i1" else _literal(value, element)
        return Value(text if count == 1 else f"splat ({element} {text})", element, count)

    def binary(self, operation: str, a: Value, b: Value | float) -> Value:
        """`operation a, b`; a number is a constant in every lane."""
        right = b if isinstance(b, Value) else self.constant(b, a)
        return self.emit(f"{operation} {a.type} {a.text}, {right.text}", a.element, a.count)

    def negate(self, a: Value) -> Value:
        """The value with its sign bit flipped."""
        return self.emit(f"fneg {a.typed}", a.element, a.count)

    def compare(self, predicate: str, a: Value, b: Value | float) -> Value:
        """`icmp` or `fcmp`, by the type of `a`."""
        right = b if isinstance(b, Value) else self.constant(b, a)
        operation = "icmp" if a.element.startswith("i") else "fcmp"
        return self.emit(f"{operation} {predicate} {a.type} {a.text}, {right.text}", "i1", a.count)

    def select(self, condition: Value, a: Value | float, b: Value | float) -> Value:
        """`a` where the condition holds, else `b`; at most one of them is a number."""
        like = a if isinstance(a, Value) else b
        if not isinstance(like, Value):
            raise TypeError("select needs a value on one side at least")
        left = a if isinstance(a, Value) else self.constant(a, like)
        right = b if isinstance(b, Value) else self.constant(b, like)
        text = f"select {condition.typed}, {left.typed}, {right.typed}"
        return self.emit(text, like.element, like.count)

    def cast(self, operation: str, a: Value, element: str) -> Value:
        """`sext`, `fpext`, `sitofp`, … to another element type; nothing where it is the same."""
        if a.element == element:
            return a
        to = vector_type(element, a.count)
        return self.emit(f"{operation} {a.typed} to {to}", element, a.count)

    def resize(self, a: Value, bits: int, signed: bool = False) -> Value:
        """An integer truncated or extended to a width."""
        operation = "trunc" if bits < a.bits else "sext" if signed else "zext"
        return self.cast(operation, a, f"i{bits}")

    def bitcast(self, a: Value, element: str) -> Value:
        """The same bits as elements of another type, so perhaps in another number."""
        count = a.count * a.bits // bits_of(element)
        if (element, count) == (a.element, a.count):
            return a
        to = vector_type(element, count)
        return self.emit(f"bitcast {a.typed} to {to}", element, count)

    def bits(self, a: Value) -> Value:
        """The value as integers of its own width."""
        return a if a.element.startswith("i") else self.bitcast(a, f"i{a.bits}")

    def floats(self, a: Value) -> Value:
        """Integers reinterpreted as floats of their own width."""
        return self.bitcast(a, float_element(a.bits))

    def intrinsic(self, name: str, *values: Value, flag: bool | None = None) -> Value:
        """An LLVM intrinsic overloaded on the type of its first argument."""
        first = values[0]
        mangled = _mangled(first.element, first.count)
        arguments = [value.typed for value in values]
        if flag is not None:
            arguments.append(f"i1 {str(flag).lower()}")
        text = f"call {first.type} @llvm.{name}.{mangled}({', '.join(arguments)})"
        return self.emit(text, first.element, first.count)

    def line(self, text: str) -> None:
        """One instruction without a result."""
        self._lines.append(f"  {text}")

    def constrained(self, name: str, *values: Value) -> Value:
        """An operation of floats in the rounding mode that is set when it runs."""
        first = values[0]
        mangled = _mangled(first.element, first.count)
        arguments = [value.typed for value in values]
        arguments += ['metadata !"round.dynamic"', 'metadata !"fpexcept.ignore"']
        function = f"@llvm.experimental.constrained.{name}.{mangled}"
        text = f"call {first.type} {function}({', '.join(arguments)}) strictfp"
        return self.emit(text, first.element, first.count)

    def saturating_integer(self, a: Value, bits: int, signed: bool) -> Value:
        """A float truncated to an integer that saturates; zero for a NaN."""
        to = f"i{bits}"
        name = f"llvm.fpto{'s' if signed else 'u'}i.sat"
        mangled = f"{_mangled(to, a.count)}.{_mangled(a.element, a.count)}"
        text = f"call {vector_type(to, a.count)} @{name}.{mangled}({a.typed})"
        return self.emit(text, to, a.count)

    def shared(self, name: str, *values: Value) -> Value:
        """A call of a prelude function from floats to floats."""
        self.requires.add(name)
        first = values[0]
        arguments = ", ".join(value.typed for value in values)
        text = f'call {first.type} @"{shared_name(name, first.count)}"({arguments})'
        return self.emit(text, first.element, first.count)

    def shuffle(self, a: Value, b: Value, mask: Sequence[int]) -> Value:
        """Elements of two vectors in the order of the mask."""
        indices = ", ".join(f"i32 {index}" for index in mask)
        text = f"shufflevector {a.typed}, {b.typed}, <{len(mask)} x i32> <{indices}>"
        return self.emit(text, a.element, len(mask))

    def element(self, a: Value, index: int) -> Value:
        """One element of a vector, as a scalar."""
        return self.emit(f"extractelement {a.typed}, i32 {index}", a.element, 1)

    def call(self, definition: Definition, *values: Value) -> list[Value]:
        """The results of another function, whose text joins this one's."""
        self._called.append(definition.ir)
        arguments = ", ".join(value.typed for value in values)
        types = [vector_type(f"i{kind[1:]}", self.lanes) for kind in definition.result_types]
        returned = "{ " + ", ".join(types) + " }"
        name = f"%v{self._names}"
        self._names += 1
        self._lines.append(f'  {name} = call {returned} @"{definition.name}"({arguments})')
        return [
            self.emit(f"extractvalue {returned} {name}, {index}", f"i{kind[1:]}", self.lanes)
            for index, kind in enumerate(definition.result_types)
        ]

    def chosen_if_any(
        self,
        mask: Value,
        some: Callable[[], Sequence[Value]],
        none: Callable[[], Sequence[Value]],
    ) -> list[Value]:
        """What `some` computes if any lane of a mask is set, else what `none` does."""
        name = f"llvm.vector.reduce.or.{_mangled('i1', mask.count)}"
        taken = self.emit(f"call i1 @{name}({mask.typed})", "i1", 1)
        labels = [f"{stem}{self._names}" for stem in ("some", "none", "join")]
        self._lines.append(f"  br {taken.typed}, label %{labels[0]}, label %{labels[1]}")
        ways = []
        for label, compute in zip(labels, (some, none), strict=False):
            self._lines.append(f"{label}:")
            ways.append(compute())
            self._lines.append(f"  br label %{labels[2]}")
        self._lines.append(f"{labels[2]}:")
        return [
            self.emit(
                f"phi {a.type} [ {a.text}, %{labels[0]} ], [ {b.text}, %{labels[1]} ]",
                a.element,
                a.count,
            )
            for a, b in zip(*ways, strict=True)
        ]

    def finish(self, name: str, attributes: str = "alwaysinline") -> Definition:
        """The finished function."""
        parameters = ", ".join(parameter.typed for parameter in self._parameters)
        returned = self._return_value()
        lines = [
            f'define internal {returned.type} @"{name}"({parameters}) {attributes} {{',
            "entry:",
            *self._lines,
            f"  ret {returned.typed}",
            "}",
        ]
        return Definition(
            name=name,
            ir="\n".join([*lines, *self._called]) + "\n",
            operand_types=tuple(self.operand_types),
            result_types=tuple(self.result_types),
            requires=frozenset(self.requires),
        )

    def _return_value(self) -> Value:
        if len(self._results) == 1:
            return self._results[0]
        struct_type = "{ " + ", ".join(value.type for value in self._results) + " }"
        packed = Value("poison", struct_type, 1)
        for index, value in enumerate(self._results):
            text = f"insertvalue {packed.typed}, {value.typed}, {index}"
            packed = self.emit(text, struct_type, 1)
        return packed


def shared_name(name: str, count: int) -> str:
    """The IR name of a prelude function over a number of elements."""
    return f"alu.shared.{name}.x{count}"


def _mangled(element: str, count: int) -> str:
    scalar = _MANGLED.get(element, element)
    return scalar if count == 1 else f"v{count}{scalar}"
