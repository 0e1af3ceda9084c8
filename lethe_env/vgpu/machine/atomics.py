"""Atomic operations on global and shared memory, lane after lane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..ptx.model import Address, Instruction, Operand, Vector
from . import scattered, shadow
from .cohort import changed_by_atomic, note_change
from .counts import count_access
from .emit import Module, Writer
from .generic import each_space
from .layout import Site
from .lowering import Lowering, take_operands
from .memory_ops import access_arguments, address_of, arguments_at
from .registers import element_type
from .values import Value, constant, i32, vector
from .windows import Access, each_window, host_addresses

_SPACES = ("global", "shared", "shared::cta")
_ORDERS = ("relaxed", "acquire", "release", "acq_rel")
_SCOPES = ("cta", "gpu", "sys", "cluster")
_HINTS = ("noftz", "L2::cache_hint")

_INTEGER = {
    ("add", "u"): "add",
    ("add", "s"): "add",
    ("and", "b"): "and",
    ("or", "b"): "or",
    ("xor", "b"): "xor",
    ("exch", "b"): "xchg",
    ("min", "u"): "umin",
    ("min", "s"): "min",
    ("max", "u"): "umax",
    ("max", "s"): "max",
    ("inc", "u"): "uinc_wrap",
    ("dec", "u"): "udec_wrap",
}
"""LLVM's `atomicrmw` for a PTX operation and kind of type."""

_PAIRS = ("f16x2", "bf16x2")
_VECTORS = {
    "v2": ("f16", "bf16", *_PAIRS, "f32"),
    "v4": ("f16", "bf16", *_PAIRS, "f32"),
    "v8": ("f16", "bf16"),
}
"""Types that vector additions have, by their length."""
_FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
_CANONICAL_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF}


@dataclass(frozen=True, slots=True)
class Atomic:
    """A decoded atomic instruction."""

    operation: str
    type: str
    space: str
    """`global`, `shared`, or `generic`."""
    count: int
    """Elements of a vector operation, each of which is atomic by itself."""
    acquires: bool
    releases: bool

    @property
    def element(self) -> str:
        """LLVM type of the operand's bits."""
        return element_type(self.type)

    @property
    def flushes(self) -> bool:
        """`add.f32` on global memory flushes subnormals; on shared memory it does not."""
        return self.type == "f32" and self.space == "global"


def lower_atomic(lowering: Lowering, instruction: Instruction) -> None:
    """Write `atom` and `red`."""
    atomic = decode(lowering, instruction)
    returns = instruction.opcode[0] == "atom"
    operands = take_operands(instruction, 2 + returns, more=True)
    target = operands[0]
    place, *values = operands[1:] if returns else operands
    expected = 2 if atomic.operation == "cas" else 1
    if not isinstance(place, Address) or len(values) < expected:
        raise lowering.unsupported(instruction, "its operands")
    elements = [_elements(lowering, instruction, v, atomic.count) for v in values[:expected]]
    targets = _elements(lowering, instruction, target, atomic.count) if returns else []
    registers = lowering.registers
    results = []
    for position in range(atomic.count):
        given = [registers.read(e[position], atomic.element, lanes=True) for e in elements]
        offset = place.offset + position * int(atomic.element[1:]) // 8
        element = replace(place, offset=offset)
        old = _operate(lowering, instruction, atomic, element, given[0], given[-1])
        if lowering.polls:
            mask = registers.active(instruction)
            values = (given[0], given[-1])
            changed = changed_by_atomic(lowering.writer, atomic.operation, mask, old, values)
            note_change(lowering.writer, lowering.context, changed)
        results.append(old)
    for item, old in zip(targets, results, strict=False):
        registers.write(item, old, registers.guard(instruction))


def _elements(
    lowering: Lowering, instruction: Instruction, operand: Operand, count: int
) -> list[Operand]:
    items = list(operand.items) if isinstance(operand, Vector) else [operand]
    if len(items) != count:
        raise lowering.unsupported(instruction, f"{len(items)} registers")
    return items


def _operate(
    lowering: Lowering,
    instruction: Instruction,
    atomic: Atomic,
    place: Address,
    value: Value,
    desired: Value,
) -> Value:
    """One atomic operation of every active lane; gives the old values."""
    writer, module = lowering.writer, lowering.module
    mask = lowering.registers.active(instruction)
    type_ = vector(atomic.element)
    if atomic.space != "generic":
        arguments = access_arguments(lowering, instruction, atomic.space, place, mask)
        return writer.call(type_, _warp_function(module, atomic), *arguments, value, desired)
    result = writer.variable(constant(type_, 0))
    addresses = address_of(lowering, place, "i64")
    for space, places, lanes in each_space(writer, addresses, mask, "shared"):
        name = _warp_function(module, replace(atomic, space=space))
        arguments = arguments_at(lowering, instruction, space, places, lanes)
        found = writer.call(type_, name, *arguments, value, desired)
        writer.store(writer.select(lanes, found, writer.load(type_, result)), result)
    return writer.load(type_, result)


def decode(lowering: Lowering, instruction: Instruction) -> Atomic:
    """What an atomic instruction does; every modifier is understood or refused."""
    _, *modifiers, type_ = instruction.opcode
    spaces = [m for m in modifiers if m in _SPACES]
    orders = [m for m in modifiers if m in _ORDERS] or ["relaxed"]
    counts = [m for m in modifiers if m in _VECTORS]
    known = (*_SPACES, *_ORDERS, *_SCOPES, *_HINTS, *_VECTORS)
    operations = [m for m in modifiers if m not in known]
    if len(spaces) > 1 or len(operations) != 1 or len(counts) > 1:
        raise lowering.unsupported(instruction)
    if counts and (
        operations != ["add"] or type_ not in _VECTORS[counts[0]] or spaces != ["global"]
    ):
        raise lowering.unsupported(instruction)
    operation = operations[0]
    integer = (operation, type_[0]) in _INTEGER and type_[1:] in ("32", "64")
    floating = operation == "add" and type_ in _FLOATS
    swapping = operation == "cas" and type_ in ("b16", "b32", "b64")
    if not integer and not floating and not swapping:
        raise lowering.unsupported(instruction)
    order = orders[0]
    return Atomic(
        operation=operation,
        type=type_,
        space=spaces[0].split("::")[0] if spaces else "generic",
        count=int(counts[0][1:]) if counts else 1,
        acquires=order in ("acquire", "acq_rel"),
        releases=order in ("release", "acq_rel"),
    )


def _warp_function(module: Module, atomic: Atomic) -> str:
    """`atomic(access…, values, desired) -> old values`; lanes go in ascending order."""
    element = atomic.element
    size_bytes = int(element[1:]) // 8

    width = int(element[1:])

    def build(writer: Writer, *parameters: Value) -> None:
        access, (values, desired) = Access(*parameters[:5]), parameters[5:]
        old = writer.variable(constant(vector(element), -1))
        given, wanted = writer.variable(values), writer.variable(desired)
        operate = _operation(atomic)

        def operate_lanes(here: Access) -> None:
            places = writer.variable(host_addresses(writer, here))
            with writer.lanes(writer.bits(here.mask)) as lane:
                address = writer.load("i64", writer.item(places, "i64", lane))
                place = writer.cast("inttoptr", address, "ptr")
                value = writer.load(element, writer.item(given, element, lane))
                desire = writer.load(element, writer.item(wanted, element, lane))
                previous = operate(writer, place, value, desire)
                writer.store(previous, writer.item(old, element, lane))

        well = writer.variable(_is_well(writer, access, atomic, size_bytes))
        with writer.when(writer.load("i1", well)):
            operate_lanes(access)
        with (
            writer.when(writer.invert(writer.load("i1", well))),
            each_window(writer, access, size_bytes) as here,
        ):
            shadow.before_atomic(writer, here, width, atomic.acquires, atomic.releases)
            operate_lanes(here)
            shadow.after_atomic(writer, here, width)
        count_access(writer, access, size_bytes, stores=True, atomic=True)
        writer.give(writer.load(vector(element), old))

    parameters = [*Access.parameters()]
    parameters += [(vector(element), "values"), (vector(element), "desired")]
    flags = f"{atomic.acquires:d}{atomic.releases:d}"
    name = f"atomic.{atomic.operation}.{atomic.type}.{atomic.space}.{flags}"
    return module.function(name, vector(element), parameters, build)


def _is_well(writer: Writer, access: Access, atomic: Atomic, size_bytes: int) -> Value:
    """Whether nothing is wrong with an operation, `i1`; notes that it happens if so."""
    well = writer.variable(scattered.is_plain(writer, access, size_bytes))
    with writer.when(writer.load("i1", well)):
        writer.store(scattered.is_defined(writer, access, size_bytes), well)
    cells = writer.compare("ne", writer.read(access.window, Site, "shadow"), 0)
    with writer.when(writer.both(cells, writer.load("i1", well))):
        name = scattered.atomic_marker(writer.module, size_bytes, atomic.acquires)
        writer.store(writer.call("i1", name, *access.values()), well)
        if atomic.releases:
            shadow.release(writer, access)
    return writer.load("i1", well)


def _operation(atomic: Atomic) -> Callable[[Writer, Value, Value, Value], Value]:
    """Writes one lane's operation; gives the old value."""
    element = atomic.element

    def native(writer: Writer, place: Value, value: Value, _desired: Value) -> Value:
        name = _INTEGER[atomic.operation, atomic.type[0]]
        return writer.op(element, f"atomicrmw {name} {place}, {value} seq_cst")

    def swap(writer: Writer, place: Value, expected: Value, desired: Value) -> Value:
        return _compare_exchange(writer, place, expected, desired)[0]

    def add(writer: Writer, place: Value, value: Value, _desired: Value) -> Value:
        seen = writer.variable(writer.load(element, place, 1))
        again, done = writer.name("again"), writer.name("done")
        writer.jump(again)
        writer.label(again)
        expected = writer.load(element, seen)
        old, success = _compare_exchange(
            writer, place, expected, _sum(writer, atomic, expected, value)
        )
        writer.store(old, seen)
        writer.branch(success, done, again)
        writer.label(done)
        return writer.load(element, seen)

    if atomic.operation == "cas":
        return swap
    return add if atomic.type in _FLOATS else native


def _compare_exchange(
    writer: Writer, place: Value, expected: Value, desired: Value
) -> tuple[Value, Value]:
    pair = writer.op(
        f"{{{expected.type}, i1}}", f"cmpxchg {place}, {expected}, {desired} seq_cst seq_cst"
    )
    return writer.part(pair, 0, expected.type), writer.part(pair, 1, "i1")


def _sum(writer: Writer, atomic: Atomic, left: Value, right: Value) -> Value:
    """The rounded sum of two values by their bits."""
    if atomic.type == "f64":
        a, b = (writer.cast("bitcast", value, "double") for value in (left, right))
        return writer.cast("bitcast", writer.op("double", f"fadd {a}, {b.text}"), "i64")
    if atomic.type == "f32":
        return _sum_of_words(writer, left, right, atomic.flushes)
    single = atomic.type.removesuffix("x2")
    if single == atomic.type:
        return _sum_of_halves(writer, single, left, right)
    parts = []
    for shift in (0, 16):
        low = [writer.resize(writer.shift_right(value, shift), "i16") for value in (left, right)]
        part = writer.resize(_sum_of_halves(writer, single, *low), "i32")
        parts.append(writer.shift_left(part, shift))
    return writer.either(*parts)


def _sum_of_words(writer: Writer, left: Value, right: Value, flushes: bool) -> Value:
    values = [_flushed(writer, value) if flushes else value for value in (left, right)]
    a, b = (writer.cast("bitcast", value, "float") for value in values)
    total = writer.op("float", f"fadd {a}, {b.text}")
    ordered = writer.op("i1", f"fcmp ord {total}, {total.text}")
    bits = writer.cast("bitcast", total, "i32")
    bits = writer.select(ordered, bits, i32(_CANONICAL_NAN["f32"]))
    return _flushed(writer, bits) if flushes else bits


def _flushed(writer: Writer, bits: Value) -> Value:
    exponent = writer.both(bits, 0x7F800000)
    sign = writer.both(bits, 0x80000000)
    return writer.select(writer.compare("eq", exponent, 0), sign, bits)


def _sum_of_halves(writer: Writer, type_: str, left: Value, right: Value) -> Value:
    """The sum in single precision is exact enough: rounding it once more changes nothing."""
    if type_ == "f16":
        wide = [
            writer.cast("fpext", writer.cast("bitcast", v, "half"), "float") for v in (left, right)
        ]
    else:
        wide = [
            writer.cast("bitcast", writer.shift_left(writer.resize(v, "i32"), 16), "float")
            for v in (left, right)
        ]
    total = writer.op("float", f"fadd {wide[0]}, {wide[1].text}")
    ordered = writer.op("i1", f"fcmp ord {total}, {total.text}")
    if type_ == "f16":
        bits = writer.cast("bitcast", writer.cast("fptrunc", total, "half"), "i16")
    else:
        word = writer.cast("bitcast", total, "i32")
        tie = writer.add(writer.both(writer.shift_right(word, 16), 1), 0x7FFF)
        bits = writer.resize(writer.shift_right(writer.add(word, tie), 16), "i16")
    return writer.select(ordered, bits, constant("i16", _CANONICAL_NAN[type_]))
