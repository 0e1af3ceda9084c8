"""Atomic operations on global and shared memory, lane after lane."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..ptx.model import Address, Instruction, Operand, Vector
from . import definedness, scattered, shadow
from .atomic_values import updated
from .cluster_access import each_block, touch_lanes
from .cluster_memory import is_foreign
from .cohort import changed_by_atomic, note_change
from .counts import count_access
from .emit import Module, Writer
from .even_atomics import write_even
from .generic import each_space
from .host_access import reader, writer_of
from .layout import ALONE, Context, Site
from .lowering import Lowering, take_operands
from .memory_ops import CLUSTER, access_arguments, address_of, arguments_at, shared_space
from .registers import element_type
from .values import LANES, Value, constant, element_of, vector
from .windows import Access, each_window, host_addresses

_SPACES = ("global", "shared", "shared::cta", CLUSTER)
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


@dataclass(frozen=True, slots=True)
class Atomic:
    """A decoded atomic instruction."""

    operation: str
    type: str
    space: str
    """`global`, `shared`, `shared::cluster` where there are clusters, or `generic`."""
    count: int
    """Elements of a vector operation, each of which is atomic by itself."""
    acquires: bool
    releases: bool

    @property
    def element(self) -> str:
        """LLVM type of the operand's bits."""
        return element_type(self.type)

    @property
    def commutes(self) -> bool:
        """Whether several threads may make it, if nobody looks at what it returns."""
        commutative = self.operation in ("add", "and", "or", "xor", "min", "max")
        return commutative and self.type not in _FLOATS

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
        return writer.call(type_, warp_function(module, atomic), *arguments, value, desired)
    result = writer.variable(constant(type_, 0))
    addresses = address_of(lowering, place, "i64")
    for space, places, lanes in each_space(writer, addresses, mask, shared_space(lowering)):
        name = warp_function(module, replace(atomic, space=space))
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
        space=_space(lowering, spaces[0]) if spaces else "generic",
        count=int(counts[0][1:]) if counts else 1,
        acquires=order in ("acquire", "acq_rel"),
        releases=order in ("release", "acq_rel"),
    )


def _space(lowering: Lowering, named: str) -> str:
    return named if named == CLUSTER and lowering.clustered else named.split("::")[0]


def warp_function(module: Module, atomic: Atomic) -> str:
    """`atomic(access…, values, desired) -> old values`; lanes go in ascending order."""
    if atomic.space == CLUSTER:
        return _cluster_function(module, replace(atomic, space="shared"))
    element = atomic.element
    width = int(element[1:])
    size_bytes = width // 8

    def build(writer: Writer, *parameters: Value) -> None:
        access, (values, desired) = Access(*parameters[:5]), parameters[5:]
        if atomic.space == "global" and width >= 32:
            write_even(
                writer,
                access,
                width,
                lambda found: _updated(writer, atomic, found, values, desired),
                _is_alone(writer, access, atomic),
                acquires=atomic.acquires,
                releases=atomic.releases,
            )
        old = writer.variable(constant(vector(element), -1))

        def operate(here: Access) -> None:
            _operate_lanes(writer, here, atomic, values, desired, old)

        well = writer.variable(_is_well(writer, access, atomic, size_bytes))
        with writer.when(writer.load("i1", well)):
            operate(access)
        with (
            writer.when(writer.invert(writer.load("i1", well))),
            each_window(writer, access, size_bytes) as here,
        ):
            shadow.before_atomic(writer, here, width, atomic.acquires, atomic.releases)
            operate(here)
            shadow.after_atomic(writer, here, width)
        count_access(writer, access, size_bytes, stores=True, atomic=True)
        writer.give(writer.load(vector(element), old))

    return module.function(_name(atomic), vector(element), _parameters(element), build)


def _parameters(element: str) -> list[tuple[str, str]]:
    values = [(vector(element), "values"), (vector(element), "desired")]
    return [*Access.parameters(), *values]


def _name(atomic: Atomic) -> str:
    flags = f"{atomic.acquires:d}{atomic.releases:d}"
    return f"atomic.{atomic.operation}.{atomic.type}.{atomic.space}.{flags}"


def _cluster_function(module: Module, atomic: Atomic) -> str:
    """The same for shared memory of any block of the cluster."""
    element = atomic.element
    size_bytes = int(element[1:]) // 8

    def build(writer: Writer, *parameters: Value) -> None:
        access, (values, desired) = Access(*parameters[:5]), parameters[5:]
        old = writer.variable(constant(vector(element), -1))
        with each_block(writer, access) as (here, home):
            foreign = is_foreign(writer, access.context, home)
            with writer.when(writer.invert(foreign)):
                name = warp_function(module, atomic)
                found = writer.call(vector(element), name, *here.values(), values, desired)
                kept = writer.load(vector(element), old)
                writer.store(writer.select(here.mask, found, kept), old)
            with writer.when(foreign), each_window(writer, here, size_bytes) as inside:
                definedness.check(writer, inside, 8 * size_bytes, 1)
                touch_lanes(writer, inside, home, inside.mask, size_bytes, shadow.Touch.ATOMIC)
                _operate_lanes(writer, inside, atomic, values, desired, old)
        writer.give(writer.load(vector(element), old))

    name = f"cluster.{_name(atomic)}"
    return module.function(name, vector(element), _parameters(element), build)


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


def _operate_lanes(
    writer: Writer, access: Access, atomic: Atomic, values: Value, desired: Value, old: Value
) -> None:
    """Operate on memory, lane after lane; leaves what was there in the vector `old`."""
    alone = _is_alone(writer, access, atomic)
    if atomic.space == "global" and atomic.commutes:
        with writer.when(writer.invert(alone)), _each_lane(writer, access, old, values) as lane:
            place, value, result = lane
            name = _INTEGER[atomic.operation, atomic.type[0]]
            text = f"atomicrmw {name} {place}, {value} seq_cst"
            writer.store(writer.op(atomic.element, text), result)
    apart = writer.both(alone, _are_apart(writer, access, int(atomic.element[1:]) // 8))
    with writer.when(apart):
        _operate_together(writer, access, atomic, values, desired, old)
    together = writer.both(alone, writer.invert(apart))
    with writer.when(together), _each_lane(writer, access, old, values, desired) as lane:
        place, value, wanted, result = lane
        found = writer.load(atomic.element, place, 1)
        writer.store(found, result)
        writer.store(_updated(writer, atomic, found, value, wanted), place, 1)


def _is_alone(writer: Writer, access: Access, atomic: Atomic) -> Value:
    """Whether no other thread can operate on the same memory, `i1`."""
    if atomic.space != "global" or not atomic.commutes:
        return constant("i1", 1)
    options = writer.read(access.context, Context, "options")
    return writer.compare("ne", writer.both(options, ALONE), 0)


def _operate_together(
    writer: Writer, access: Access, atomic: Atomic, values: Value, desired: Value, old: Value
) -> None:
    width = int(atomic.element[1:])
    places = host_addresses(writer, access)
    read, write = (make(writer.module, width, 1) for make in (reader, writer_of))
    found = writer.call(values.type, read, places, access.mask, values)
    writer.store(found, old)
    new = _updated(writer, atomic, found, values, desired)
    writer.call("void", write, places, access.mask, new)


def _updated(writer: Writer, atomic: Atomic, old: Value, value: Value, desired: Value) -> Value:
    operation, type_ = atomic.operation, atomic.type
    return updated(writer, operation, type_, old, value, desired, atomic.flushes)


def _are_apart(writer: Writer, access: Access, size_bytes: int) -> Value:
    """Whether all lanes are active, ascend, and do not overlap, `i1`."""
    before = writer.shuffle(access.addresses, [0, *range(LANES - 1)])
    far = writer.compare("uge", access.addresses, writer.add(before, size_bytes))
    active = writer.both(writer.bits(far), writer.bits(access.mask))
    first = writer.both(writer.bits(access.mask), 1)
    return writer.compare("eq", writer.either(active, first), -1)


@contextmanager
def _each_lane(writer: Writer, access: Access, *vectors: Value) -> Iterator[list[Value]]:
    """A loop over active lanes; gives the place in memory, and of each vector its element.

    The first vector is a place; of it, the place of its element comes last.
    """
    result, *given = vectors
    places = writer.variable(host_addresses(writer, access))
    slots = [writer.variable(value) for value in given]
    with writer.lanes(writer.bits(access.mask)) as lane:
        address = writer.load("i64", writer.item(places, "i64", lane))
        items = []
        for value, slot in zip(given, slots, strict=True):
            element = element_of(value.type)
            items.append(writer.load(element, writer.item(slot, element, lane)))
        where = writer.item(result, element_of(given[0].type), lane)
        yield [writer.cast("inttoptr", address, "ptr"), *items, where]
