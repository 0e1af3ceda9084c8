"""Instructions that move data between registers and memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from ..ptx.model import Address, Instruction, Operand, Symbol, Vector
from . import whole
from .access import loader, storer
from .cluster_access import cluster_loader, cluster_storer
from .cohort import note_change
from .generic import each_space
from .host_access import reader, result_types, writer_of
from .layout import Context, Fiber, Site
from .lowering import Lowering, take_operands
from .registers import element_type
from .values import (
    LANES,
    Value,
    constant,
    constants,
    element_of,
    is_vector,
    like,
    struct_type,
)

_EVICTION = ("evict_first", "evict_last", "evict_normal", "evict_unchanged", "no_allocate")
_PERFORMANCE_ONLY = frozenset(
    ["nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt"]
    + [f"{level}::{priority}" for level in ("L1", "L2") for priority in _EVICTION]
    + ["L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"]
)
"""Modifiers that steer caches and cannot change a result."""

_SCOPES = frozenset(("cta", "cluster", "gpu", "sys"))
_ORDERING = frozenset(("volatile", "weak", "relaxed", "acquire", "release")) | _SCOPES
"""Satisfied by sequential consistency."""

_ORDERED = frozenset(("volatile", "relaxed", "acquire", "release"))
_PROXY_FENCES = frozenset(
    (("proxy", "async"), ("proxy", "async", "shared::cta"), ("proxy", "async", "shared::cluster"))
)
_PHASE_FENCE = ("mbarrier_init", "release", "cluster")
_FENCES = frozenset(("sc", "acq_rel", "acquire", "release", "gl")) | _SCOPES

_COUNTS = {"v2": 2, "v4": 4, "v8": 8}
_MOST_BITS = {"global": 256}
"""Widest access to a state space, in bits per lane; 128 elsewhere."""

_SPACES = frozenset(
    ("global", "shared", "shared::cta", "shared::cluster", "param", "const", "local")
)
CLUSTER = "shared::cluster"
"""Shared memory of any block of the cluster, where there may be others."""


def lower_load(lowering: Lowering, instruction: Instruction) -> None:
    """Write `ld`."""
    space, count, width = decode(lowering, instruction)
    target, source, *rest = take_operands(instruction, 2, more=True)
    if not isinstance(source, Address) or (rest and "L2::cache_hint" not in instruction.opcode):
        raise lowering.unsupported(instruction, "its operands")
    targets = _items(lowering, instruction, target, count)
    if space == "param" and _is_kernel_parameter(lowering, source):
        _load_parameter(lowering, instruction, targets, source, width)
        return
    registers, writer = lowering.registers, lowering.writer
    mask = registers.active(instruction)
    types = result_types(width, count)
    addresses = address_of(lowering, source, address_width(space))
    if space == "generic":
        results = [writer.variable(constant(type_, 0)) for type_ in types]
        for part, places, lanes in each_space(writer, addresses, mask, *_told(lowering)):
            loaded = _load(lowering, instruction, part, places, lanes, types)
            for place, value in zip(results, loaded, strict=True):
                writer.store(writer.either(writer.load(value.type, place), value), place)
        values = [writer.load(type_, place) for type_, place in zip(types, results, strict=True)]
    else:
        values = _load(lowering, instruction, space, addresses, mask, types)
    for item, value in zip(targets, values, strict=True):
        _write_loaded(lowering, instruction, item, value)


def _told(lowering: Lowering) -> tuple[str, str]:
    """The spaces that generic addresses of a load or a store are told apart by."""
    return shared_space(lowering), "local"


def shared_space(lowering: Lowering) -> str:
    """The space of a generic address of shared memory."""
    return CLUSTER if lowering.clustered else "shared"


def _load(
    lowering: Lowering,
    instruction: Instruction,
    space: str,
    addresses: Value,
    mask: Value,
    types: Sequence[str],
) -> list[Value]:
    """Load values of some types from one state space; lanes that are off get zeros."""
    writer, count = lowering.writer, len(types)
    width = int(element_of(types[0])[1:])
    zeros = [constant(type_, 0) for type_ in types]
    if space in ("local", "param"):
        name = reader(lowering.module, width, count)
        places = local_addresses(lowering, addresses)
        result = writer.call(struct_type(types), name, places, mask, *zeros)
        return writer.unpack(result, types)
    arguments = arguments_at(lowering, instruction, space, addresses, mask)
    ordered = not _ORDERED.isdisjoint(instruction.opcode)
    if space == CLUSTER:
        name = cluster_loader(lowering.module, width, count, ordered)
        result = writer.call(struct_type(types), name, *arguments, *zeros)
    elif not ordered:
        name = whole.loader(lowering.module, width, count, space == "shared")
        addresses, mask, *rest = arguments
        result = writer.call(struct_type(types), name, addresses, writer.bits(mask), *rest)
    else:
        name = loader(lowering.module, width, count, ordered=True)
        result = writer.call(struct_type(types), name, *arguments, *zeros)
    return writer.unpack(result, types)


def lower_store(lowering: Lowering, instruction: Instruction) -> None:
    """Write `st`."""
    space, count, width = decode(lowering, instruction)
    target, source, *rest = take_operands(instruction, 2, more=True)
    if not isinstance(target, Address) or (rest and "L2::cache_hint" not in instruction.opcode):
        raise lowering.unsupported(instruction, "its operands")
    registers, writer = lowering.registers, lowering.writer
    mask = registers.active(instruction)
    if lowering.polls and space in ("global", "generic", CLUSTER):
        note_change(writer, lowering.context, mask)
    items = _items(lowering, instruction, source, count)
    values = [registers.read(item, f"i{width}", lanes=True) for item in items]
    addresses = address_of(lowering, target, address_width(space))
    if space == "generic":
        for part, places, lanes in each_space(writer, addresses, mask, *_told(lowering)):
            _store(lowering, instruction, part, places, lanes, values)
    elif space == "const":
        raise lowering.unsupported(instruction)
    else:
        _store(lowering, instruction, space, addresses, mask, values)


def _store(
    lowering: Lowering,
    instruction: Instruction,
    space: str,
    addresses: Value,
    mask: Value,
    values: list[Value],
) -> None:
    """Store to one state space."""
    writer, count = lowering.writer, len(values)
    width = int(element_of(values[0].type)[1:])
    if space in ("local", "param"):
        name = writer_of(lowering.module, width, count)
        writer.call("void", name, local_addresses(lowering, addresses), mask, *values)
        return
    arguments = arguments_at(lowering, instruction, space, addresses, mask)
    ordered = not _ORDERED.isdisjoint(instruction.opcode)
    if space == CLUSTER:
        name = cluster_storer(lowering.module, width, count, ordered)
    elif not ordered:
        name = whole.storer(lowering.module, width, count, space == "shared")
        addresses, mask, *rest = arguments
        arguments = [addresses, writer.bits(mask), *rest]
    else:
        name = storer(lowering.module, width, count, ordered=True)
    writer.call("void", name, *arguments, *values)


def decode(lowering: Lowering, instruction: Instruction) -> tuple[str, int, int]:
    """State space, elements, and bits per element; every modifier is understood or refused."""
    _, *modifiers, type_ = instruction.opcode
    space, count = "", 1
    for modifier in modifiers:
        if modifier in _SPACES and not space:
            kept = modifier == CLUSTER and lowering.clustered
            space = modifier if kept else modifier.split("::")[0]
        elif modifier in _COUNTS:
            count = _COUNTS[modifier]
        elif modifier not in _PERFORMANCE_ONLY | _ORDERING:
            raise lowering.unsupported(instruction)
    width = int(element_type(type_)[1:])
    if width * count > _MOST_BITS.get(space, 128) or width < 8:
        raise lowering.unsupported(instruction)
    return space or "generic", count, width


def address_of(lowering: Lowering, source: Address, element: str) -> Value:
    """Addresses of all lanes, `<32 x element>`."""
    registers, writer = lowering.registers, lowering.writer
    base = registers.read(source.base, element)
    if source.offset:
        base = writer.add(base, source.offset)
    return base if is_vector(base.type) else writer.splat(base)


def address_width(space: str) -> str:
    """The integer type of addresses within a state space."""
    return "i32" if space in ("shared", CLUSTER) else "i64"


def access_arguments(
    lowering: Lowering, instruction: Instruction, space: str, source: Address, mask: Value
) -> list[Value]:
    """The arguments that every memory function begins with: see `windows.Access`."""
    addresses = address_of(lowering, source, address_width(space))
    return arguments_at(lowering, instruction, space, addresses, mask)


def arguments_at(
    lowering: Lowering, instruction: Instruction, space: str, addresses: Value, mask: Value
) -> list[Value]:
    """`access_arguments` for addresses that are known already."""
    writer, context = lowering.writer, lowering.context
    site = lowering.site(instruction)
    if space in ("shared", CLUSTER):
        addresses = writer.resize(addresses, "i64")
        window = writer.field(context, Context, "shared_window")
    else:
        size = f"[{ctypes.sizeof(Site)} x i8]"
        window = writer.item(lowering.site_table, size, writer.resize(site, "i64"))
    return [addresses, mask, window, site, context]


def local_addresses(lowering: Lowering, offsets: Value) -> Value:
    """Host addresses in the lanes' own memory, from `i64` offsets."""
    writer, depot = lowering.writer, lowering.depot
    start = writer.splat(writer.cast("ptrtoint", depot, "i64"))
    own = [lane * lowering.depot_bytes for lane in range(LANES)]
    lanes = writer.add(start, constants("i64", own))
    return writer.add(lanes, offsets)


def lower_fence(lowering: Lowering, instruction: Instruction) -> None:
    """`membar` and `fence` between threads: empty, as memory is sequentially consistent."""
    parts = instruction.opcode[1:]
    if parts[:2] == ("proxy", "tensormap::generic") or parts == _PHASE_FENCE:
        return
    if parts in _PROXY_FENCES:
        writer = lowering.writer
        epoch = writer.read(lowering.context, Context, "epoch")
        writer.write(lowering.context, Context, "fenced", epoch)
        writer.write(lowering.fiber, Fiber, "fenced", epoch)
        return
    if not set(instruction.opcode[1:]) <= _FENCES:
        raise lowering.unsupported(instruction)


def lower_nothing(lowering: Lowering, instruction: Instruction) -> None:
    """An instruction that cannot change a result."""


def lower_policy(lowering: Lowering, instruction: Instruction) -> None:
    """`createpolicy`: a cache policy is any number, since nobody looks at it."""
    target = instruction.operands[0]
    lowering.registers.write(target, constant("i64", 0), lowering.registers.guard(instruction))


def _is_kernel_parameter(lowering: Lowering, source: Address) -> bool:
    names = {parameter.name for parameter in lowering.kernel.parameters}
    return isinstance(source.base, Symbol) and source.base.name in names


def _load_parameter(
    lowering: Lowering,
    instruction: Instruction,
    targets: list[Operand],
    source: Address,
    width: int,
) -> None:
    offsets = {p.name: p.offset_bytes for p in lowering.kernel.parameters}
    writer = lowering.writer
    buffer = writer.read(lowering.context, Context, "parameters")
    start = source.offset
    if isinstance(source.base, Symbol):
        start += offsets[source.base.name]
    guard = lowering.registers.guard(instruction)
    for position, item in enumerate(targets):
        place = writer.at(buffer, start + position * width // 8)
        value = writer.load(f"i{width}", place, 1)
        value = _extended(lowering, instruction, item, value)
        lowering.registers.write(item, value, guard)


def _write_loaded(
    lowering: Lowering, instruction: Instruction, target: Operand, value: Value
) -> None:
    registers = lowering.registers
    value = _extended(lowering, instruction, target, value)
    registers.write(target, value, registers.guard(instruction))


def _extended(lowering: Lowering, instruction: Instruction, target: Operand, value: Value) -> Value:
    """Signed loads into a wider register extend the sign."""
    have = element_of(value.type)
    want = lowering.registers.width(target)
    signed = instruction.opcode[-1].startswith("s")
    if want is None or not signed or int(want[1:]) <= int(have[1:]):
        return value
    return lowering.writer.cast("sext", value, like(value.type, want))


def _items(
    lowering: Lowering, instruction: Instruction, operand: Operand, count: int
) -> list[Operand]:
    items: list[Operand] = [operand]
    if isinstance(operand, Vector):
        items = list(operand.items)
    if len(items) != count:
        raise lowering.unsupported(instruction, f"{len(items)} registers")
    return items
