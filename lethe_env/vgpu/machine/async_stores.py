"""`st.async` and `red.async`: lanes hand values over that come to a block of the cluster later.

A barrier there learns how many bytes have come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ptx.model import Address, Instruction, Operand, Vector
from . import atomics, definedness, memory_ops, shadow
from .atomic_values import updated
from .cluster_memory import (
    check_blocks,
    each_home,
    home_access,
    is_foreign,
    rank_bit,
    touch,
)
from .dispatch import push, submit
from .emit import Writer
from .layout import RANK_BITS, Context, Site
from .lowering import Lowering, take_operands
from .memory_ops import address_of
from .phase_actions import arriver
from .refusals import refuse
from .shadow import Touch
from .units import Kind, Operation
from .values import Value, constant, i64, vector
from .windows import OUT_OF_BOUNDS, Access, report

_MODIFIERS = ("mbarrier::complete_tx::bytes", "shared::cluster")
_VECTORS = {"v2": 2, "v4": 4}
_BITS: Mapping[str, int] = {
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64,
}  # fmt: skip
_REDUCTIONS = (
    *((name, "u32") for name in ("inc", "dec", "min", "max", "add")),
    *((name, "s32") for name in ("min", "max", "add")),
    *((name, "b32") for name in ("and", "or", "xor")),
    ("add", "u64"),
)
"""By their numbers, from one on, in an `Operation`; zero is a store."""
_SIZES_BYTES = (4, 8, 16)


def lower_store(lowering: Lowering, instruction: Instruction) -> None:
    """Write `st`, and `st.async` among them."""
    if instruction.opcode[1] != "async":
        memory_ops.lower_store(lowering, instruction)
        return
    *modifiers, type_ = (part for part in instruction.opcode[2:] if part != "weak")
    counts = [_VECTORS[part] for part in modifiers if part in _VECTORS]
    others = [part for part in modifiers if part not in _VECTORS]
    bits = _BITS.get(type_, 0) * (counts or [1])[0]
    if sorted(others) != sorted(_MODIFIERS) or bits not in (32, 64, 128) or len(counts) > 1:
        raise lowering.unsupported(instruction)
    _hand_over(lowering, instruction, bits // 8, 0, (counts or [1])[0])


def lower_reduction(lowering: Lowering, instruction: Instruction) -> None:
    """Write `red`, and `red.async` among them."""
    if instruction.opcode[1] != "async":
        atomics.lower_atomic(lowering, instruction)
        return
    *modifiers, type_ = instruction.opcode[2:]
    known = (*_MODIFIERS, "relaxed", "cluster")
    operations = [part for part in modifiers if part not in known]
    kinds = [(name, type_) for name in operations if (name, type_) in _REDUCTIONS]
    if len(operations) != 1 or not kinds or not {*_MODIFIERS, "relaxed"} <= {*modifiers}:
        raise lowering.unsupported(instruction)
    number = 1 + _REDUCTIONS.index(kinds[0])
    _hand_over(lowering, instruction, _BITS[type_] // 8, number, 1)


def _hand_over(
    lowering: Lowering, instruction: Instruction, size_bytes: int, reduction: int, count: int
) -> None:
    """Queue what every active lane stores, or reduces with."""
    place, value, barrier = take_operands(instruction, 3)
    if not isinstance(place, Address) or not isinstance(barrier, Address):
        raise lowering.unsupported(instruction, "its operands")
    items = value.items if isinstance(value, Vector) else (value,)
    if len(items) != count:
        raise lowering.unsupported(instruction, f"{len(items)} registers")
    writer, context, site = lowering.writer, lowering.context, lowering.site(instruction)
    halves = [writer.variable(half) for half in _halves(lowering, items, 8 * size_bytes // count)]
    addresses = [writer.variable(address_of(lowering, at, "i32")) for at in (place, barrier)]
    with writer.lanes(writer.bits(lowering.registers.active(instruction))) as lane:
        own = push(writer, context, lowering.fiber, Kind.PUT, site)
        for name, half in zip(("left", "right"), halves, strict=True):
            writer.write(own, Operation, name, writer.load("i64", writer.item(half, "i64", lane)))
        writer.write(own, Operation, "columns", size_bytes)
        writer.write(own, Operation, "sources", reduction)
        for names, table in zip((("target", "blocks"), ("barrier", "homes")), addresses,
                                strict=True):  # fmt: skip
            address = writer.load("i32", writer.item(table, "i32", lane))
            writer.write(own, Operation, names[0], writer.both(address, (1 << RANK_BITS) - 1))
            blocks = rank_bit(writer, writer.shift_right(address, RANK_BITS))
            writer.write(own, Operation, names[1], blocks)
        _claim(writer, context, own, site, size_bytes, reduces=reduction > 0)
        submit(writer, context)


def _halves(lowering: Lowering, items: Sequence[Operand], bits: int) -> list[Value]:
    """The bytes of all lanes as two words of 64 bits."""
    writer = lowering.writer
    halves = [constant(vector("i64"), 0)] * 2
    for index, item in enumerate(items):
        at = index * bits
        value = writer.resize(lowering.registers.read(item, f"i{bits}", lanes=True), "i64")
        moved = writer.shift_left(value, at % 64) if at % 64 else value
        halves[at // 64] = writer.either(halves[at // 64], moved)
    return halves


def _claim(
    writer: Writer, context: Value, operation: Value, site: Value, size_bytes: int, reduces: bool
) -> None:
    """From now on, what is written is on its way; reports if it cannot come."""
    blocks, homes = (writer.read(operation, Operation, name) for name in ("blocks", "homes"))
    offset = writer.resize(writer.read(operation, Operation, "target"), "i64")
    check_blocks(writer, context, blocks, offset, site)
    with writer.when(writer.compare("ne", blocks, homes)):
        refuse(writer, context, "elsewhere")
    with each_home(writer, context, blocks) as (_, home):
        access = home_access(writer, context, home, offset, site)
        fits = _fits(writer, home, offset, size_bytes)
        with writer.when(writer.invert(fits)):
            report(writer, access, OUT_OF_BOUNDS, constant("i32", 1), i64(size_bytes))
        with writer.when(fits):
            _note(writer, home, access, offset, size_bytes, reduces, comes=False)


def _fits(writer: Writer, home: Value, offset: Value, size_bytes: int) -> Value:
    size = writer.read(writer.field(home, Context, "shared_window"), Site, "size")
    return writer.compare("ule", writer.add(offset, size_bytes), size)


def _note(
    writer: Writer,
    home: Value,
    access: Access,
    offset: Value,
    size_bytes: int,
    reduces: bool,
    comes: bool,
) -> None:
    """Check and mark what is accessed, when it is handed over or when it comes."""
    how = Touch.ATOMIC if reduces else Touch.WRITE
    foreign = is_foreign(writer, access.context, home)
    with writer.when(foreign):
        size = i64(size_bytes)
        if not reduces:
            definedness.mark(writer, access, 32, size_bytes // 4, defined=comes)
        elif comes:
            definedness.check(writer, access, 32, size_bytes // 4)
        touch(writer, access.context, home, offset, size, how, access.site, by_unit=not reduces)
    with writer.when(writer.invert(foreign)):
        if reduces:
            shadow.before_atomic(writer, access, 8 * size_bytes, acquires=False, releases=False)
        elif comes:
            shadow.complete_copy(writer, access, size_bytes // 4)
        else:
            shadow.issue_copy(writer, access, size_bytes // 4)


def put(writer: Writer, context: Value, operation: Value) -> None:
    """Write what happens when it comes."""
    site, size, reduction, blocks = (
        writer.read(operation, Operation, name) for name in ("site", "columns", "sources", "blocks")
    )
    offset, barrier = (
        writer.resize(writer.read(operation, Operation, name), "i64")
        for name in ("target", "barrier")
    )
    with each_home(writer, context, blocks) as (_, home):
        for size_bytes in _SIZES_BYTES:
            fits = _fits(writer, home, offset, size_bytes)
            own = writer.compare("eq", size, size_bytes)
            with writer.when(writer.both(own, fits)):
                access = home_access(writer, context, home, offset, site)
                plain = writer.compare("eq", reduction, 0)
                with writer.when(plain):
                    _note(writer, home, access, offset, size_bytes, False, comes=True)
                    _store(writer, home, operation, offset, size_bytes)
                with writer.when(writer.invert(plain)):
                    _note(writer, home, access, offset, size_bytes, True, comes=True)
                    _reduce(writer, home, operation, offset, 8 * size_bytes)
        name = arriver(writer.module)
        come = writer.sub(i64(0), writer.resize(size, "i64"))
        writer.call("i64", name, context, home, barrier, i64(0), come, site)


def _place(writer: Writer, home: Value, offset: Value) -> Value:
    window = writer.field(home, Context, "shared_window")
    return writer.cast("inttoptr", writer.add(writer.read(window, Site, "host"), offset), "ptr")


def _store(writer: Writer, home: Value, operation: Value, offset: Value, size_bytes: int) -> None:
    source = writer.field(operation, Operation, "left")
    piece = vector("i8", size_bytes)
    writer.store(writer.load(piece, source, 1), _place(writer, home, offset), 1)


def _reduce(writer: Writer, home: Value, operation: Value, offset: Value, bits: int) -> None:
    number = writer.read(operation, Operation, "sources")
    place = _place(writer, home, offset)
    given = writer.load(f"i{bits}", writer.field(operation, Operation, "left"), 1)
    for index, (name, type_) in enumerate(_REDUCTIONS, 1):
        if _BITS[type_] == bits:
            with writer.when(writer.compare("eq", number, index)):
                old = writer.load(f"i{bits}", place, 1)
                new = updated(writer, name, type_, old, given, given, False)
                writer.store(new, place, 1)
