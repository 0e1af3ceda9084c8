"""Tensor memory: 128 lanes of 512 columns that a block allocates, loads and stores.

An address holds a lane in its upper half and a column in its lower.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..ptx.model import Address, Immediate, Instruction, Operand, Vector
from .access import storer
from .emit import Module, Writer
from .layout import Context, Fiber
from .lowering import Lowering, take_operands
from .memory_ops import access_arguments, address_of
from .units import ROW_BLOCK, TENSOR_COLUMNS, TENSOR_LANES, Units, units_of
from .values import LANES, Value, constant, declared, i32, i64, is_vector, vector
from .windows import OUT_OF_BOUNDS, UNINITIALISED_READ, Access, report

_FORM = re.compile(r"x(\d+)")
_ROW = vector("i32", ROW_BLOCK)
_BLOCKS = TENSOR_LANES // ROW_BLOCK
_FREE = 0


def scalar(lowering: Lowering, operand: Operand, element: str) -> Value:
    """What the first active lane reads; instructions of a whole warp want one value."""
    value = lowering.registers.read(operand, element)
    return value if not is_vector(value.type) else lowering.writer.extract(value, 0)


def lower_alloc(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tcgen05.alloc`."""
    place, count = take_operands(instruction, 2)
    if not isinstance(place, Address):
        raise lowering.unsupported(instruction, "its operands")
    registers, writer = lowering.registers, lowering.writer
    active = registers.active(instruction)
    with writer.when(writer.any(active)):
        wanted = scalar(lowering, count, "i32")
        site = lowering.site(instruction)
        found = writer.call("i32", _allocator(lowering.module), lowering.context, wanted, site)
        first = writer.both(active, constant_lane(0))
        arguments = access_arguments(lowering, instruction, "shared", place, first)
        name = storer(lowering.module, 32, 1, lowering.granule_bits)
        writer.call("void", name, *arguments, writer.splat(found))


def constant_lane(lane: int) -> Value:
    """A mask of one lane."""
    bits = ", ".join(f"i1 {'true' if k == lane else 'false'}" for k in range(LANES))
    return Value(vector("i1"), f"<{bits}>")


def lower_dealloc(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tcgen05.dealloc`."""
    address, count = take_operands(instruction, 2)
    registers, writer = lowering.registers, lowering.writer
    with writer.when(writer.any(registers.active(instruction))):
        arguments = (scalar(lowering, address, "i32"), scalar(lowering, count, "i32"),
                     lowering.site(instruction))  # fmt: skip
        writer.call("void", _releaser(lowering.module), lowering.context, *arguments)


def lower_access(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tcgen05.ld` and `tcgen05.st`."""
    action, *_, shape, count, _ = instruction.opcode[1:]
    loads, split = action == "ld", shape == "16x32bx2"
    operands = list(take_operands(instruction, 2 + split))
    # The second half's distance in columns follows the address.
    offset = operands.pop(2 if loads else 1) if split else Immediate(0)
    items, place = operands if loads else operands[::-1]
    amount = _FORM.fullmatch(count)
    if amount is None or not isinstance(place, Address) or not isinstance(offset, Immediate):
        raise lowering.unsupported(instruction, "its operands")
    registers = items.items if isinstance(items, Vector) else (items,)
    if len(registers) != int(amount[1]):
        raise lowering.unsupported(instruction, f"{len(registers)} registers")
    (_load if loads else _store)(lowering, instruction, place, registers, offset.value, shape)


def _load(lowering: Lowering, instruction: Instruction, place: Address,
          items: Sequence[Operand], offset: int, shape: str) -> None:  # fmt: skip
    registers, writer = lowering.registers, lowering.writer
    buffer = writer.slot(f"[{len(items) * LANES} x i32]", 64)
    _move(lowering, instruction, place, buffer, len(items), offset, shape, loads=True)
    guard = registers.guard(instruction)
    for index, item in enumerate(items):
        value = writer.load(vector("i32"), writer.item(buffer, vector("i32"), index), 64)
        registers.write(item, value, guard)


def _store(lowering: Lowering, instruction: Instruction, place: Address,
           items: Sequence[Operand], offset: int, shape: str) -> None:  # fmt: skip
    registers, writer = lowering.registers, lowering.writer
    buffer = writer.slot(f"[{len(items) * LANES} x i32]", 64)
    for index, item in enumerate(items):
        value = registers.read(item, "i32", lanes=True)
        writer.store(value, writer.item(buffer, vector("i32"), index), 64)
    _move(lowering, instruction, place, buffer, len(items), offset, shape, loads=False)


def _move(lowering: Lowering, instruction: Instruction, place: Address, buffer: Value,
          count: int, offset: int, shape: str, loads: bool) -> None:  # fmt: skip
    writer = lowering.writer
    with writer.when(writer.any(lowering.registers.active(instruction))):
        address = writer.extract(address_of(lowering, place, "i32"), 0)
        split = i32(offset) if shape == "16x32bx2" else i32(0)
        lanes = i32(0) if shape == "16x32bx2" else i32(ROW_BLOCK)
        upper = writer.add(address, split)
        upper = writer.add(upper, writer.shift_left(lanes, 16))
        name = _mover(lowering.module, loads)
        site = lowering.site(instruction)
        for half, part in enumerate((address, upper)):
            own = writer.at(buffer, 4 * ROW_BLOCK * half)
            writer.call("void", name, lowering.context, part, own, i64(count), site)


def _mover(module: Module, loads: bool) -> str:
    """`move(context, address, buffer, count, site)`: 16 lanes of `count` columns."""

    def build(writer: Writer, context: Value, address: Value, buffer: Value, count: Value,
              site: Value) -> None:  # fmt: skip
        own_lanes = _is_own(writer, context, address)
        with writer.when(writer.invert(own_lanes)):
            tell(writer, context, address, OUT_OF_BOUNDS, i64(4), site)
        fine = may_access(writer, context, address, count, site)
        with writer.when(writer.both(fine, own_lanes)):
            if loads:
                check_defined(writer, context, address, count, site)
            else:
                define(writer, context, address, count)
            start = cells(writer, context, address)
            with writer.repeat(count) as column:
                cell = writer.item(start, "i32", writer.mul(column, TENSOR_LANES))
                own = writer.item(buffer, "i32", writer.mul(column, LANES))
                source, target = (cell, own) if loads else (own, cell)
                writer.store(writer.load(_ROW, source, 4), target, 4)
        writer.give()

    parameters = declared("ptr context, i32 address, ptr buffer, i64 count, i32 site")
    name = f"tensor_memory.{'load' if loads else 'store'}"
    return module.function(name, "void", parameters, build)


def _is_own(writer: Writer, context: Value, address: Value) -> Value:
    """Whether lanes are the current warp's: a quarter of them, by its number."""
    fiber = writer.read(context, Context, "current")
    quarter = writer.both(writer.read(fiber, Fiber, "warp"), 3)
    return writer.compare("eq", writer.shift_right(address, 21), quarter)


def cells(writer: Writer, context: Value, address: Value) -> Value:
    """Where a lane and column lie; the next column is 128 cells further."""
    start = writer.field(units_of(writer, context), Units, "cells")
    return writer.item(start, "i32", _index(writer, address))


def _index(writer: Writer, address: Value) -> Value:
    lane = writer.both(writer.shift_right(address, 16), TENSOR_LANES - 1)
    column = writer.both(address, TENSOR_COLUMNS - 1)
    index = writer.add(writer.mul(column, TENSOR_LANES), lane)
    return writer.resize(index, "i64")


def _blocks(writer: Writer, context: Value, address: Value) -> Value:
    start = writer.field(units_of(writer, context), Units, "defined")
    index = writer.shift_right(_index(writer, address), ROW_BLOCK.bit_length() - 1)
    return writer.at(start, index)


def define(writer: Writer, context: Value, address: Value, count: Value) -> None:
    """Note that 16 lanes of some columns are written."""
    start = _blocks(writer, context, address)
    with writer.repeat(count) as column:
        writer.store(constant("i8", 1), writer.at(start, writer.mul(column, _BLOCKS)))


def check_defined(
    writer: Writer, context: Value, address: Value, count: Value, site: Value
) -> None:
    """Report if not all of 16 lanes of some columns have been written."""
    start = _blocks(writer, context, address)
    all_ = writer.variable(constant("i8", 1))
    with writer.repeat(count) as column:
        flag = writer.load("i8", writer.at(start, writer.mul(column, _BLOCKS)))
        writer.store(writer.both(writer.load("i8", all_), flag), all_)
    with writer.when(writer.compare("eq", writer.load("i8", all_), 0)):
        tell(writer, context, address, UNINITIALISED_READ, i64(0), site)


def may_access(writer: Writer, context: Value, address: Value, count: Value, site: Value) -> Value:
    """Whether columns are allocated, and 16 lanes exist, `i1`; reports if not."""
    owners = writer.field(units_of(writer, context), Units, "owners")
    first = writer.resize(writer.both(address, 0xFFFF), "i64")
    lane = writer.shift_right(address, 16)
    inside = writer.compare("ule", writer.add(first, count), TENSOR_COLUMNS)
    fine = writer.both(inside, writer.compare("ule", lane, TENSOR_LANES - ROW_BLOCK))
    fine = writer.both(fine, writer.compare("eq", writer.both(lane, ROW_BLOCK - 1), 0))
    well = writer.variable(fine)
    with writer.when(fine), writer.repeat(count) as column:
        owner = writer.load("i8", writer.at(owners, writer.add(first, column)))
        owned = writer.compare("ne", owner, _FREE)
        writer.store(writer.both(writer.load("i1", well), owned), well)
    with writer.when(writer.invert(writer.load("i1", well))):
        tell(writer, context, address, OUT_OF_BOUNDS, i64(4), site)
    return writer.load("i1", well)


def tell(
    writer: Writer, context: Value, address: Value, kind: int, other: Value, site: Value
) -> None:
    """Record a finding about tensor memory."""
    window = writer.field(context, Context, "shared_window")
    addresses = writer.splat(writer.resize(address, "i64"))
    access = Access(addresses, constant_lane(0), window, site, context)
    report(writer, access, kind, i32(1), other)


def _allocator(module: Module) -> str:
    """`i32 allocate(context, count, site)`: the first columns that are free, aligned to `count`."""

    def build(writer: Writer, context: Value, count: Value, site: Value) -> None:
        units = units_of(writer, context)
        owners = writer.field(units, Units, "owners")
        wide = writer.resize(count, "i64")
        found = writer.variable(i64(TENSOR_COLUMNS))
        tries = writer.binary("udiv", i64(TENSOR_COLUMNS), _at_least_one(writer, wide))
        with writer.repeat(tries) as attempt:
            first = writer.mul(attempt, wide)
            taken = writer.variable(constant("i8", 0))
            with writer.repeat(wide) as column:
                owner = writer.load("i8", writer.at(owners, writer.add(first, column)))
                writer.store(writer.either(writer.load("i8", taken), owner), taken)
            free = writer.compare("eq", writer.load("i8", taken), _FREE)
            fresh = writer.compare("eq", writer.load("i64", found), TENSOR_COLUMNS)
            with writer.when(writer.both(free, fresh)):
                writer.store(first, found)
        first = writer.load("i64", found)
        missing = writer.compare("eq", first, TENSOR_COLUMNS)
        with writer.when(missing):
            tell(writer, context, i32(0), OUT_OF_BOUNDS, writer.mul(wide, 4), site)
        with writer.when(writer.invert(missing)), writer.repeat(wide) as column:
            place = writer.at(owners, writer.add(first, column))
            writer.store(constant("i8", 1), place)
            lanes = writer.mul(writer.add(first, column), _BLOCKS)
            flags = writer.at(writer.field(units, Units, "defined"), lanes)
            writer.store(constant(vector("i8", _BLOCKS), 0), flags, 1)
            garbage = constant(vector("i32", TENSOR_LANES), -1)
            start = writer.mul(writer.add(first, column), TENSOR_LANES)
            writer.store(garbage, writer.item(writer.field(units, Units, "cells"), "i32", start), 4)
        writer.give(writer.resize(writer.both(first, TENSOR_COLUMNS - 1), "i32"))

    parameters = declared("ptr context, i32 count, i32 site")
    return module.function("tensor_memory.allocate", "i32", parameters, build)


def _at_least_one(writer: Writer, count: Value) -> Value:
    return writer.call("i64", "llvm.umax.i64", count, i64(1))


def _releaser(module: Module) -> str:
    """`release(context, address, count, site)`."""

    def build(writer: Writer, context: Value, address: Value, count: Value, site: Value) -> None:
        owners = writer.field(units_of(writer, context), Units, "owners")
        wide = writer.resize(count, "i64")
        with writer.when(may_access(writer, context, address, wide, site)):
            first = writer.resize(writer.both(address, TENSOR_COLUMNS - 1), "i64")
            with writer.repeat(wide) as column:
                place = writer.at(owners, writer.add(first, column))
                writer.store(constant("i8", _FREE), place)
        writer.give()

    parameters = declared("ptr context, i32 address, i32 count, i32 site")
    return module.function("tensor_memory.release", "void", parameters, build)


def write_all(module: Module) -> None:
    """Write what kernels call."""
    _allocator(module)
    _releaser(module)
    for loads in (True, False):
        _mover(module, loads)
