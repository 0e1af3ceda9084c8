"""Allocation of tensor memory: who has which columns, and what is left when a block ends."""

from __future__ import annotations

from collections.abc import Sequence

from ..ptx.model import Address, Instruction
from .access import storer
from .cluster_memory import mate_of
from .emit import Module, Writer
from .instruction_descriptors import PAIR
from .leading_lane import at_lane, one_lane
from .lowering import Lowering, take_operands
from .memory_ops import access_arguments
from .refusals import refuse
from .tensor_memory import BLOCKS, FREE, check_idle, constant_lane, misused
from .units import TENSOR_COLUMNS, TENSOR_LANES, Misuse, Units, units_of
from .values import Value, constant, declared, i32, i64, vector

_LEAST = 32
"""Columns are allocated in powers of two from this number on."""


def lower_alloc(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tcgen05.alloc`."""
    place, count = take_operands(instruction, 2)
    if not isinstance(place, Address):
        raise lowering.unsupported(instruction, "its operands")
    registers, writer = lowering.registers, lowering.writer
    active = registers.active(instruction)
    with one_lane(lowering, instruction) as lane:
        wanted = at_lane(lowering, count, "i32", lane)
        site = lowering.site(instruction)
        name = (_pair_allocator if PAIR in instruction.opcode else _allocator)(lowering.module)
        found = writer.call("i32", name, lowering.context, wanted, site)
        first = writer.both(active, constant_lane(0))
        arguments = access_arguments(lowering, instruction, "shared", place, first)
        name = storer(lowering.module, 32, 1)
        writer.call("void", name, *arguments, writer.splat(found))


def lower_dealloc(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tcgen05.dealloc`."""
    address, count = take_operands(instruction, 2)
    with one_lane(lowering, instruction) as lane:
        values = (at_lane(lowering, operand, "i32", lane) for operand in (address, count))
        name = _releaser(lowering.module)
        site = lowering.site(instruction)
        lowering.writer.call("void", name, lowering.context, *values, site)


def lower_relinquish(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tcgen05.relinquish_alloc_permit`."""
    with one_lane(lowering, instruction):
        name = _quitter(lowering.module)
        lowering.writer.call("void", name, lowering.context, lowering.site(instruction))


def _allocator(module: Module) -> str:
    """`i32 allocate(context, count, site)`: the first columns that are free, aligned to `count`."""

    def build(writer: Writer, context: Value, count: Value, site: Value) -> None:
        units = units_of(writer, context)
        first = _checked_first(writer, context, (units,), count, site)
        writer.give(first)

    parameters = declared("ptr context, i32 count, i32 site")
    return module.function("tensor_memory.allocate", "i32", parameters, build)


def _pair_allocator(module: Module) -> str:
    """`i32 allocate(context, count, site)`: columns of both blocks of a pair, for the first.

    The second gets what the first has taken for it.
    """

    def build(writer: Writer, context: Value, count: Value, site: Value) -> None:
        units = units_of(writer, context)
        exists, mate = mate_of(writer, context)
        with writer.when(writer.invert(exists)):
            refuse(writer, context, "alone")
        promised = writer.read(units, Units, "promised")
        with writer.when(writer.compare("ne", promised, 0)):
            with writer.when(writer.compare("ne", promised, count)):
                misused(writer, context, i32(0), Misuse.NOT_ALIKE, site)
            writer.write(units, Units, "promised", 0)
            writer.give(writer.read(units, Units, "promised_first"))
            writer.label(writer.name("given"))
        others = units_of(writer, mate)
        with writer.when(writer.compare("ne", writer.read(others, Units, "promised"), 0)):
            refuse(writer, context, "ahead")
        first = _checked_first(writer, context, (units, others), count, site)
        for name, value in (
            ("promised", count),
            ("promised_first", first),
            ("promised_site", site),
        ):
            writer.write(others, Units, name, value)
        writer.give(first)

    parameters = declared("ptr context, i32 count, i32 site")
    return module.function("tensor_memory.allocate_pair", "i32", parameters, build)


def _checked_first(
    writer: Writer, context: Value, all_units: Sequence[Value], count: Value, site: Value
) -> Value:
    """Take columns that are free in the tensor memory of all blocks given, `i32`."""
    given_up = writer.compare("ne", writer.read(all_units[0], Units, "given_up"), 0)
    with writer.when(given_up):
        misused(writer, context, i32(0), Misuse.GIVEN_UP, site)
    wide = writer.resize(count, "i64")
    first = _first_free(writer, all_units, wide)
    missing = writer.compare("eq", first, TENSOR_COLUMNS)
    with writer.when(missing):
        misused(writer, context, i32(0), Misuse.NO_ROOM, site)
    with writer.when(writer.invert(missing)):
        owner = writer.resize(writer.add(writer.binary("udiv", first, i64(_LEAST)), 1), "i8")
        with writer.repeat(wide) as position:
            for units in all_units:
                _take(writer, units, writer.add(first, position), owner, site)
    return writer.resize(writer.both(first, TENSOR_COLUMNS - 1), "i32")


def _first_free(writer: Writer, all_units: Sequence[Value], count: Value) -> Value:
    """Where so many columns are free, or one more than there are."""
    tables = [writer.field(units, Units, "owners") for units in all_units]
    found = writer.variable(i64(TENSOR_COLUMNS))
    power = writer.compare("eq", writer.both(count, writer.sub(count, 1)), 0)
    legal = writer.both(power, writer.compare("uge", count, _LEAST))
    with writer.when(legal), writer.repeat(writer.binary("udiv", i64(TENSOR_COLUMNS), count)) as k:
        first = writer.mul(k, count)
        taken = writer.variable(constant("i8", FREE))
        with writer.repeat(count) as column:
            for owners in tables:
                owner = writer.load("i8", writer.at(owners, writer.add(first, column)))
                writer.store(writer.either(writer.load("i8", taken), owner), taken)
        free = writer.compare("eq", writer.load("i8", taken), FREE)
        fresh = writer.compare("eq", writer.load("i64", found), TENSOR_COLUMNS)
        with writer.when(writer.both(free, fresh)):
            writer.store(first, found)
    return writer.load("i64", found)


def _take(writer: Writer, units: Value, column: Value, owner: Value, site: Value) -> None:
    """Give a column to an owner, with nothing in it."""
    writer.store(owner, writer.at(writer.field(units, Units, "owners"), column))
    sites = writer.field(units, Units, "allocation_sites")
    writer.store(site, writer.item(sites, "i32", column))
    flags = writer.at(writer.field(units, Units, "defined"), writer.mul(column, BLOCKS))
    writer.store(constant(vector("i8", BLOCKS), 0), flags, 1)
    start = writer.mul(column, TENSOR_LANES)
    cells = writer.item(writer.field(units, Units, "cells"), "i32", start)
    writer.store(constant(vector("i32", TENSOR_LANES), -1), cells, 4)


def _releaser(module: Module) -> str:
    """`release(context, address, count, site)`."""

    def build(writer: Writer, context: Value, address: Value, count: Value, site: Value) -> None:
        owners = writer.field(units_of(writer, context), Units, "owners")
        wide = writer.resize(count, "i64")
        check_idle(writer, context, address, wide, site)
        first = writer.resize(address, "i64")
        owner = writer.add(writer.binary("udiv", first, i64(_LEAST)), 1)
        inside = writer.compare("ule", writer.add(first, wide), TENSOR_COLUMNS)
        held = writer.variable(i64(0))
        with writer.when(inside), writer.repeat(i64(TENSOR_COLUMNS)) as column:
            own = writer.resize(writer.load("i8", writer.at(owners, column)), "i64")
            mine = writer.resize(writer.compare("eq", own, owner), "i64")
            writer.store(writer.add(writer.load("i64", held), mine), held)
        exact = writer.compare("eq", writer.load("i64", held), wide)
        exact = writer.both(exact, writer.compare("ne", wide, 0))
        with writer.when(exact), writer.repeat(wide) as column:
            place = writer.at(owners, writer.add(first, column))
            writer.store(constant("i8", FREE), place)
        with writer.when(writer.invert(exact)):
            misused(writer, context, address, Misuse.NOT_AS_ALLOCATED, site)
        writer.give()

    parameters = declared("ptr context, i32 address, i32 count, i32 site")
    return module.function("tensor_memory.release", "void", parameters, build)


def _quitter(module: Module) -> str:
    """`quit(context, site)`: a block gives up its right to allocate."""

    def build(writer: Writer, context: Value, site: Value) -> None:
        units = units_of(writer, context)
        before = writer.compare("ne", writer.read(units, Units, "given_up"), 0)
        with writer.when(before):
            misused(writer, context, i32(0), Misuse.GIVEN_UP, site)
        writer.write(units, Units, "given_up", 1)
        writer.give()

    parameters = declared("ptr context, i32 site")
    return module.function("tensor_memory.quit", "void", parameters, build)


def report_kept(writer: Writer, context: Value) -> None:
    """Report columns that the block has not released, where they were allocated.

    So are those that another block has allocated for a pair, and this one has not.
    """
    units = units_of(writer, context)
    with writer.when(writer.compare("ne", writer.read(units, Units, "promised"), 0)):
        site = writer.read(units, Units, "promised_site")
        misused(writer, context, i32(0), Misuse.NO_PARTNER, site)
    owners = writer.field(units, Units, "owners")
    sites = writer.field(units, Units, "allocation_sites")
    with writer.repeat(i64(TENSOR_COLUMNS)) as column:
        owner = writer.load("i8", writer.at(owners, column))
        with writer.when(writer.compare("ne", owner, FREE)):
            site = writer.load("i32", writer.item(sites, "i32", column))
            address = writer.resize(column, "i32")
            misused(writer, context, address, Misuse.KEPT, site)


def write_all(module: Module) -> None:
    """Write what kernels call."""
    for function in (_allocator, _pair_allocator, _releaser, _quitter):
        function(module)
