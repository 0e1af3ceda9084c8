"""Writing LLVM IR as text: functions, straight-line operations, and structured control flow."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from .values import (
    LANES,
    Value,
    constant,
    constants,
    count_of,
    element_of,
    i64,
    like,
    struct_type,
    vector,
)


class Module:
    """Functions and declarations of one LLVM module, each written once."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        """Begin an empty module.

        Args:
            known: declarations, by name, of functions that another object defines.
        """
        self.functions: dict[str, str] = {}
        self.declarations: dict[str, str] = {}
        self._known = known or {}

    def text(self) -> str:
        """The whole module."""
        return "\n\n".join([*self.declarations.values(), *self.functions.values()]) + "\n"

    def declare(self, name: str, result: str, parameters: Sequence[str]) -> None:
        """Declare an intrinsic or an external function."""
        text = f"declare {result} @{name}({', '.join(parameters)})"
        self.declarations.setdefault(name, text)

    def refer(self, name: str) -> bool:
        """Declare a function if another object defines it; whether one does."""
        if name not in self._known:
            return False
        self.declarations.setdefault(name, self._known[name])
        return True

    def add_text(self, name: str, text: str) -> None:
        """Add functions that exist as text already; `declare` lines in it may be repeated."""
        if name in self.functions or self.refer(name):
            return
        body = []
        for line in text.splitlines():
            if line.startswith("declare "):
                self.declarations.setdefault(
                    line[line.index("@") + 1 : line.index("(", line.index("@"))], line
                )
            else:
                body.append(line)
        self.functions[name] = "\n".join(body)

    def function(
        self,
        name: str,
        result: str,
        parameters: Sequence[tuple[str, str]],
        build: Callable[..., None],
        attributes: str = "noinline",
        linkage: str = "internal",
    ) -> str:
        """Write a function unless it exists, here or in another object.

        Args:
            name: Its symbol.
            result: Its return type.
            parameters: Types and names.
            build: Called with a `Writer` and one `Value` per parameter.
            attributes: LLVM function attributes.
            linkage: `internal`, or empty for a symbol that is looked up from outside.

        Returns:
            The name.
        """
        if name not in self.functions and not self.refer(name):
            self.functions[name] = ""
            writer = Writer(self)
            build(writer, *(Value(type_, f"%{label}") for type_, label in parameters))
            listed = ", ".join(f"{type_} %{label}" for type_, label in parameters)
            head = f"define {linkage} {result} @{name}({listed}) {attributes} {{"
            self.functions[name] = "\n".join([head, *writer.lines(), "}"])
        return name


class Writer:
    """Writes the body of one function."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._entry: list[str] = ["entry:"]
        self._body: list[str] = []
        self._count = 0

    def lines(self) -> list[str]:
        """The body: stack slots first, then the code in order."""
        return [*self._entry, "  br label %body", "body:", *self._body]

    def name(self, stem: str = "t") -> str:
        """A fresh local name without its `%`."""
        self._count += 1
        return f"{stem}.{self._count}"

    def line(self, text: str) -> None:
        """One instruction without a result."""
        self._body.append(f"  {text}")

    def op(self, type_: str, text: str) -> Value:
        """One instruction with a result of the given type."""
        name = f"%{self.name()}"
        self._body.append(f"  {name} = {text}")
        return Value(type_, name)

    def binary(self, name: str, left: Value, right: Value) -> Value:
        """`add`, `sub`, `and`, `shl`, … of two values of one type."""
        return self.op(left.type, f"{name} {left}, {right.text}")

    def add(self, left: Value, right: Value | int) -> Value:
        """Wrapping sum; an `int` takes the type of the left side."""
        return self.binary("add", left, self._match(left, right))

    def sub(self, left: Value, right: Value | int) -> Value:
        """Wrapping difference."""
        return self.binary("sub", left, self._match(left, right))

    def mul(self, left: Value, right: Value | int) -> Value:
        """Wrapping product."""
        return self.binary("mul", left, self._match(left, right))

    def both(self, left: Value, right: Value | int) -> Value:
        """Bitwise and."""
        return self.binary("and", left, self._match(left, right))

    def either(self, left: Value, right: Value | int) -> Value:
        """Bitwise or."""
        return self.binary("or", left, self._match(left, right))

    def invert(self, value: Value) -> Value:
        """Bitwise complement."""
        return self.binary("xor", value, constant(value.type, -1))

    def shift_left(self, value: Value, bits: Value | int) -> Value:
        """Left shift by less than the width."""
        return self.binary("shl", value, self._match(value, bits))

    def shift_right(self, value: Value, bits: Value | int) -> Value:
        """Logical right shift by less than the width."""
        return self.binary("lshr", value, self._match(value, bits))

    def compare(self, condition: str, left: Value, right: Value | int) -> Value:
        """Integer comparison: `eq`, `ult`, `sge`, …."""
        other = self._match(left, right)
        return self.op(like(left.type, "i1"), f"icmp {condition} {left}, {other.text}")

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """Choose per element, or as a whole by a scalar condition."""
        return self.op(yes.type, f"select {condition}, {yes}, {no}")

    def cast(self, kind: str, value: Value, type_: str) -> Value:
        """`zext`, `sext`, `trunc`, `bitcast`, `inttoptr`, …."""
        return self.op(type_, f"{kind} {value} to {type_}")

    def resize(self, value: Value, element: str) -> Value:
        """Zero-extend or truncate integers to another width."""
        have, want = int(element_of(value.type)[1:]), int(element[1:])
        if have == want:
            return value
        return self.cast("zext" if want > have else "trunc", value, like(value.type, element))

    def splat(self, value: Value, count: int = LANES) -> Value:
        """A scalar in every lane."""
        type_ = vector(value.type, count)
        first = self.op(type_, f"insertelement {type_} poison, {value}, i64 0")
        zeros = f"{vector('i32', count)} zeroinitializer"
        return self.op(type_, f"shufflevector {first}, {type_} poison, {zeros}")

    def extract(self, value: Value, lane: Value | int) -> Value:
        """One lane of a vector."""
        index = i64(lane) if isinstance(lane, int) else lane
        return self.op(element_of(value.type), f"extractelement {value}, {index}")

    def insert(self, value: Value, item: Value, lane: Value | int) -> Value:
        """A vector with one lane replaced."""
        index = i64(lane) if isinstance(lane, int) else lane
        return self.op(value.type, f"insertelement {value}, {item}, {index}")

    def shuffle(self, left: Value, lanes: Sequence[int], right: Value | None = None) -> Value:
        """Pick lanes out of one or two vectors laid end to end."""
        second = str(right) if right is not None else f"{left.type} poison"
        result = vector(element_of(left.type), len(lanes))
        return self.op(result, f"shufflevector {left}, {second}, {constants('i32', lanes)}")

    def part(self, aggregate: Value, index: int, type_: str) -> Value:
        """A member of a struct value."""
        return self.op(type_, f"extractvalue {aggregate}, {index}")

    def pack(self, values: Sequence[Value]) -> Value:
        """A struct value of several values; one value stays as it is."""
        if len(values) == 1:
            return values[0]
        type_ = struct_type([value.type for value in values])
        packed = Value(type_, "poison")
        for index, value in enumerate(values):
            packed = self.op(type_, f"insertvalue {packed}, {value}, {index}")
        return packed

    def unpack(self, value: Value, types: Sequence[str]) -> list[Value]:
        """The members of what `pack` made."""
        if len(types) == 1:
            return [value]
        return [self.part(value, index, type_) for index, type_ in enumerate(types)]

    def call(self, result: str, name: str, *arguments: Value) -> Value:
        """Call a function; intrinsics are declared on the way."""
        if name.startswith("llvm."):
            self.module.declare(name, result, [argument.type for argument in arguments])
        text = f"call {result} @{name}({', '.join(map(str, arguments))})"
        if result == "void":
            self.line(text)
            return Value("void", "")
        return self.op(result, text)

    def any(self, mask: Value) -> Value:
        """Whether any lane of an `i1` vector is set."""
        return self.compare("ne", self.bits(mask), 0)

    def bits(self, mask: Value) -> Value:
        """An `i1` vector as an integer, lane 0 in the lowest bit."""
        return self.cast("bitcast", mask, f"i{count_of(mask.type)}")

    def mask(self, bits: Value) -> Value:
        """The inverse of `bits`."""
        return self.cast("bitcast", bits, vector("i1", int(bits.type[1:])))

    def slot(self, type_: str, align: int | None = None, initial: Value | None = None) -> Value:
        """A variable on the stack of the function, set to `initial` when the function begins."""
        name = f"%{self.name('slot')}"
        suffix = f", align {align}" if align else ""
        self._entry.append(f"  {name} = alloca {type_}{suffix}")
        if initial is not None:
            self._entry.append(f"  store {initial}, ptr {name}")
        return Value("ptr", name)

    def variable(self, initial: Value) -> Value:
        """A stack variable that holds `initial` from here on."""
        place = self.slot(initial.type)
        self.store(initial, place)
        return place

    def load(self, type_: str, place: Value, align: int | None = None) -> Value:
        """Read memory."""
        suffix = f", align {align}" if align else ""
        return self.op(type_, f"load {type_}, {place}{suffix}")

    def store(self, value: Value, place: Value, align: int | None = None) -> None:
        """Write memory."""
        suffix = f", align {align}" if align else ""
        self.line(f"store {value}, {place}{suffix}")

    def masked_load(self, place: Value, mask: Value, old: Value, align: int) -> Value:
        """Read the elements in a mask; the others are those of `old`."""
        suffix = f"v{count_of(old.type)}{element_of(old.type)}"
        name = f"llvm.masked.load.{suffix}.p0"
        self.module.declare(name, old.type, ["ptr", mask.type, old.type])
        pointer = f"ptr align {align} {place.text}"
        return self.op(old.type, f"call {old.type} @{name}({pointer}, {mask}, {old})")

    def masked_store(self, value: Value, place: Value, mask: Value, align: int) -> None:
        """Write the elements in a mask."""
        name = f"llvm.masked.store.v{count_of(value.type)}{element_of(value.type)}.p0"
        self.module.declare(name, "void", [value.type, "ptr", mask.type])
        self.line(f"call void @{name}({value}, ptr align {align} {place.text}, {mask})")

    def at(self, base: Value, offset_bytes: Value | int) -> Value:
        """An address some bytes after another."""
        offset = i64(offset_bytes) if isinstance(offset_bytes, int) else offset_bytes
        return self.op("ptr", f"getelementptr i8, {base}, {offset}")

    def item(self, base: Value, type_: str, index: Value | int) -> Value:
        """The address of an element of an array."""
        which = i64(index) if isinstance(index, int) else index
        return self.op("ptr", f"getelementptr {type_}, {base}, {which}")

    def field(self, base: Value, structure: type[ctypes.Structure], name: str) -> Value:
        """The address of a field of a native structure."""
        return self.at(base, getattr(structure, name).offset)

    def read(self, base: Value, structure: type[ctypes.Structure], name: str) -> Value:
        """A field of a native structure."""
        return self.load(_field_type(structure, name), self.field(base, structure, name))

    def write(
        self, base: Value, structure: type[ctypes.Structure], name: str, value: Value | int
    ) -> None:
        """Set a field of a native structure."""
        type_ = _field_type(structure, name)
        value = constant(type_, value) if isinstance(value, int) else value
        self.store(value, self.field(base, structure, name))

    def label(self, name: str) -> None:
        """Begin a basic block."""
        self._body.append(f"{name}:")

    def jump(self, name: str) -> None:
        """Branch without a condition."""
        self.line(f"br label %{name}")

    def branch(self, condition: Value, yes: str, no: str) -> None:
        """Branch on a scalar condition."""
        self.line(f"br {condition}, label %{yes}, label %{no}")

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Code that runs where a scalar condition holds."""
        inside, after = self.name("when"), self.name("after")
        self.branch(condition, inside, after)
        self.label(inside)
        yield
        self.jump(after)
        self.label(after)

    @contextmanager
    def repeat(self, count: Value) -> Iterator[Value]:
        """A counted loop; gives the index, of the type of `count`."""
        index = self.variable(constant(count.type, 0))
        head, inside, after = self.name("head"), self.name("inside"), self.name("after")
        self.jump(head)
        self.label(head)
        current = self.load(count.type, index)
        self.branch(self.compare("ult", current, count), inside, after)
        self.label(inside)
        yield current
        self.store(self.add(current, 1), index)
        self.jump(head)
        self.label(after)

    @contextmanager
    def pieces(self, total: Value, step: int, element: str) -> Iterator[tuple[Value, Value]]:
        """A loop over `total` elements, `step` of them at a time.

        Gives the position of a piece, `i64`, and which of its elements there are. `step` must
        be less than half of what `element` can count.
        """
        index = self.variable(i64(0))
        head, inside, after = self.name("head"), self.name("inside"), self.name("after")
        self.jump(head)
        self.label(head)
        current = self.load("i64", index)
        self.branch(self.compare("ult", current, total), inside, after)
        self.label(inside)
        left = self.call("i64", "llvm.umin.i64", self.sub(total, current), i64(step))
        limit = self.splat(self.resize(left, element), step)
        yield current, self.compare("ult", constants(element, range(step)), limit)
        self.store(self.add(current, step), index)
        self.jump(head)
        self.label(after)

    @contextmanager
    def lanes(self, bits: Value) -> Iterator[Value]:
        """A loop over the set bits of an `i32`; gives the lane as `i64`."""
        left = self.variable(bits)
        head, inside, after = self.name("head"), self.name("inside"), self.name("after")
        self.jump(head)
        self.label(head)
        current = self.load("i32", left)
        self.branch(self.compare("ne", current, 0), inside, after)
        self.label(inside)
        lane = self.call("i32", "llvm.cttz.i32", current, constant("i1", 1))
        self.store(self.both(current, self.sub(current, 1)), left)
        yield self.resize(lane, "i64")
        self.jump(head)
        self.label(after)

    def give(self, value: Value | None = None) -> None:
        """Return from the function."""
        self.line("ret void" if value is None else f"ret {value}")

    def _match(self, left: Value, right: Value | int) -> Value:
        return constant(left.type, right) if isinstance(right, int) else right


def _field_type(structure: type[ctypes.Structure], name: str) -> str:
    kinds = dict((field[0], field[1]) for field in structure._fields_)
    kind = kinds[name]
    return "ptr" if kind is ctypes.c_void_p else f"i{8 * ctypes.sizeof(kind)}"
