"""Tensor memory: 128 lanes of 512 columns that a block allocates, loads and stores.

An address holds a lane in its upper half and a column in its lower.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..ptx.model import Address, Immediate, Instruction, Operand, Vector
from .cluster_memory import mate_of
from .emit import Module, Writer
from .layout import Context, Fiber
from .lowering import Lowering, take_operands
from .memory_ops import address_of
from .tensor_fragments import FRAGMENTS, gather, scatter
from .units import (
    PAIRED_PRODUCT,
    ROW_BLOCK,
    TENSOR_COLUMNS,
    TENSOR_LANES,
    Kind,
    Misuse,
    Operation,
    Units,
    operation_at,
    units_of,
)
from .values import LANES, Value, constant, declared, i32, i64, vector
from .windows import ASYNCHRONOUS, UNINITIALISED_READ, Access, report

_FORM = re.compile(r"x(\d+)")
_ROW = vector("i32", ROW_BLOCK)
BLOCKS = TENSOR_LANES // ROW_BLOCK
_DEFINED, _STORED = 1, 2
"""Of 16 lanes of a column: they hold something; they will when their stores are waited for."""

FREE = 0
"""Owner of a column that is not allocated."""


def constant_lane(lane: int) -> Value:
    """A mask of one lane."""
    bits = ", ".join(f"i1 {'true' if k == lane else 'false'}" for k in range(LANES))
    return Value(vector("i1"), f"<{bits}>")


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
    fragment = FRAGMENTS.get(shape)
    if len(registers) != int(amount[1]) * (fragment.registers if fragment else 1):
        raise lowering.unsupported(instruction, f"{len(registers)} registers")
    (_load if loads else _store)(lowering, instruction, place, registers, offset.value, shape)


def _load(lowering: Lowering, instruction: Instruction, place: Address,
          items: Sequence[Operand], offset: int, shape: str) -> None:  # fmt: skip
    registers, writer = lowering.registers, lowering.writer
    columns = _columns(shape, len(items))
    buffer = writer.slot(f"[{columns * LANES} x i32]", 64)
    _move(lowering, instruction, place, buffer, columns, offset, shape, loads=True)
    guard = registers.guard(instruction)
    if shape in FRAGMENTS:
        values = gather(writer, FRAGMENTS[shape], buffer, len(items))
    else:
        places = [writer.item(buffer, vector("i32"), index) for index in range(columns)]
        values = [writer.load(vector("i32"), own, 64) for own in places]
    for item, value in zip(items, values, strict=True):
        registers.write(item, value, guard)


def _store(lowering: Lowering, instruction: Instruction, place: Address,
           items: Sequence[Operand], offset: int, shape: str) -> None:  # fmt: skip
    registers, writer = lowering.registers, lowering.writer
    columns = _columns(shape, len(items))
    buffer = writer.slot(f"[{columns * LANES} x i32]", 64)
    values = [registers.read(item, "i32", lanes=True) for item in items]
    if shape in FRAGMENTS:
        scatter(writer, FRAGMENTS[shape], buffer, values)
    else:
        for index, value in enumerate(values):
            writer.store(value, writer.item(buffer, vector("i32"), index), 64)
    _move(lowering, instruction, place, buffer, columns, offset, shape, loads=False)


def _columns(shape: str, registers: int) -> int:
    """How many columns so many registers of a warp fill."""
    fragment = FRAGMENTS.get(shape)
    return registers // fragment.registers * fragment.columns if fragment else registers


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
        parts = (address,) if shape in FRAGMENTS else (address, upper)
        for half, part in enumerate(parts):
            own = writer.at(buffer, 4 * ROW_BLOCK * half)
            writer.call("void", name, lowering.context, part, own, i64(count), site)


def _mover(module: Module, loads: bool) -> str:
    """`move(context, address, buffer, count, site)`: 16 lanes of `count` columns."""

    def build(writer: Writer, context: Value, address: Value, buffer: Value, count: Value,
              site: Value) -> None:  # fmt: skip
        own_lanes = _is_own(writer, context, address)
        with writer.when(writer.invert(own_lanes)):
            misused(writer, context, address, Misuse.OTHER_LANES, site)
        check_idle(writer, context, address, count, site)
        fine = may_access(writer, context, address, count, site)
        with writer.when(writer.both(fine, own_lanes)):
            if loads:
                check_defined(writer, context, address, count, site)
            else:
                define(writer, context, address, count, _STORED)
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


def define(
    writer: Writer, context: Value, address: Value, count: Value, how: int = _DEFINED
) -> None:
    """Note that 16 lanes of some columns are written, or will be when that is waited for."""
    start = _blocks(writer, context, address)
    with writer.repeat(count) as column:
        writer.store(constant("i8", how), writer.at(start, writer.mul(column, BLOCKS)))


def check_defined(
    writer: Writer, context: Value, address: Value, count: Value, site: Value
) -> None:
    """Report if not all of 16 lanes of some columns have been written."""
    start = _blocks(writer, context, address)
    least, most = (writer.variable(constant("i8", _DEFINED)) for _ in range(2))
    with writer.repeat(count) as column:
        flag = writer.load("i8", writer.at(start, writer.mul(column, BLOCKS)))
        for name, place in (("umin", least), ("umax", most)):
            value = writer.call("i8", f"llvm.{name}.i8", writer.load("i8", place), flag)
            writer.store(value, place)
    with writer.when(writer.compare("eq", writer.load("i8", least), 0)):
        tell(writer, context, address, UNINITIALISED_READ, i64(0), site)
    with writer.when(writer.compare("eq", writer.load("i8", most), _STORED)):
        misused(writer, context, address, Misuse.NOT_STORED, site)


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
        owned = writer.compare("ne", owner, FREE)
        writer.store(writer.both(writer.load("i1", well), owned), well)
    with writer.when(writer.invert(writer.load("i1", well))):
        misused(writer, context, address, Misuse.NOT_ALLOCATED, site)
    return writer.load("i1", well)


def check_idle(writer: Writer, context: Value, address: Value, count: Value, site: Value) -> None:
    """Report if a product that works on some columns is still in the queue."""
    busy = count_products(writer, context, address, count)
    with writer.when(writer.compare("ne", busy, 0)):
        misused(writer, context, address, Misuse.UNDER_WAY, site)


def count_products(writer: Writer, context: Value, address: Value, count: Value) -> Value:
    """Products in the queue whose results lie in some columns, `i64`; the pair's among them."""
    return writer.call("i64", _counter(writer.module), context, address, count)


def _counter(module: Module) -> str:
    """`i64 busy(context, address, count)`."""

    def build(writer: Writer, context: Value, address: Value, count: Value) -> None:
        total = writer.variable(i64(0))
        _count_queue(writer, context, address, count, total, 0)
        paired, mate = mate_of(writer, context)
        with writer.when(paired):
            _count_queue(writer, mate, address, count, total, PAIRED_PRODUCT)
        writer.give(writer.load("i64", total))

    parameters = declared("ptr context, i32 address, i64 count")
    return module.function("tensor_memory.busy", "i64", parameters, build)


def _count_queue(
    writer: Writer, context: Value, address: Value, count: Value, total: Value, flag: int
) -> None:
    """Count products in one block's queue that have a flag."""
    units = units_of(writer, context)
    own = writer.resize(writer.both(address, 0xFFFF), "i64")
    end = writer.add(own, count)
    first = writer.read(units, Units, "first")
    with writer.repeat(writer.read(units, Units, "count")) as position:
        other = operation_at(writer, units, writer.add(first, position))
        start = writer.both(writer.read(other, Operation, "target"), 0xFFFF)
        start = writer.resize(start, "i64")
        width = writer.resize(writer.read(other, Operation, "columns"), "i64")
        overlaps = writer.both(
            writer.compare("ult", start, end), writer.compare("ult", own, writer.add(start, width))
        )
        kind = writer.read(other, Operation, "kind")
        product = writer.compare("eq", kind, int(Kind.PRODUCT))
        flags = writer.both(writer.read(other, Operation, "flags"), flag)
        counted = writer.both(product, writer.compare("eq", flags, flag))
        amount = writer.resize(writer.both(counted, overlaps), "i64")
        writer.store(writer.add(writer.load("i64", total), amount), total)


def misused(writer: Writer, context: Value, address: Value, how: Misuse, site: Value) -> None:
    """Record what a kernel must not do."""
    tell(writer, context, address, ASYNCHRONOUS, i64(int(how)), site)


def tell(
    writer: Writer, context: Value, address: Value, kind: int, other: Value, site: Value
) -> None:
    """Record a finding about tensor memory."""
    window = writer.field(context, Context, "shared_window")
    addresses = writer.splat(writer.resize(address, "i64"))
    access = Access(addresses, constant_lane(0), window, site, context)
    report(writer, access, kind, i32(1), other)


def lower_store_wait(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tcgen05.wait::st`."""
    writer = lowering.writer
    with writer.when(writer.any(lowering.registers.active(instruction))):
        writer.call("void", _settler(lowering.module), lowering.context)


def _settler(module: Module) -> str:
    """`settle(context)`: the current warp's stores are done."""

    def build(writer: Writer, context: Value) -> None:
        fiber = writer.read(context, Context, "current")
        quarter = writer.both(writer.read(fiber, Fiber, "warp"), 3)
        start = writer.field(units_of(writer, context), Units, "defined")
        first = writer.resize(writer.mul(quarter, BLOCKS // 4), "i64")
        pair = vector("i8", BLOCKS // 4)
        with writer.repeat(i64(TENSOR_COLUMNS)) as column:
            place = writer.at(start, writer.add(writer.mul(column, BLOCKS), first))
            flags = writer.load(pair, place, 1)
            settled = writer.call(pair, "llvm.umin.v2i8", flags, constant(pair, _DEFINED))
            writer.store(settled, place, 1)
        writer.give()

    return module.function("tensor_memory.settle", "void", declared("ptr context"), build)


def write_all(module: Module) -> None:
    """Write what kernels call."""
    _settler(module)
    for loads in (True, False):
        _mover(module, loads)
