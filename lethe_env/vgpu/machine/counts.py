"""Counts of a launch: what was executed and what was moved."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ..ptx.flow import Flow
from ..ptx.model import Instruction, Kernel
from .emit import Module, Writer
from .layout import COUNT_MEMORY, Context, Counters, Site
from .spans import SECTOR_BITS
from .tensor_work import tensor_operations
from .values import LANES, Value, constant, constants, element_of, i32, i64, vector
from .windows import Access

_BANK_BYTES = 4
_BANKS = 32

_CLASSES = {
    "memory": "ld st cp ldmatrix stmatrix prefetch prefetchu cvta createpolicy",
    "atomic": "atom red",
    "tensor": "mma wgmma tcgen05",
    "special": "ex2 lg2 sin cos tanh rcp rsqrt sqrt",
    "control": "bra brx ret exit trap call",
    "synchronisation": "bar barrier membar fence nanosleep mbarrier",
    "exchange": "shfl vote match redux activemask elect",
    "conversion": "cvt",
    "move": "mov selp prmt",
}
_CLASS_OF = {name: kind for kind, names in _CLASSES.items() for name in names.split()}
_EVENTS = tuple(name for name, _ in Counters._fields_)
_FLOAT_TYPES = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f64"))


def class_of(instruction: Instruction) -> str:
    """The class an instruction is counted in, such as `integer`, `f32`, `memory`, or `tensor`."""
    known = _CLASS_OF.get(instruction.opcode[0])
    if known is not None:
        return known
    return next((part for part in instruction.opcode if part in _FLOAT_TYPES), "integer")


@dataclass(frozen=True, slots=True)
class Tally:
    """What one execution of each block of a kernel counts for."""

    names: tuple[str, ...]
    """`warp_instructions`, `instructions.<class>`, and `mma_operations` if there are any; then the
    fields of `Counters`.
    """
    amounts: np.ndarray
    """uint64 `[blocks, names]`, but for the fields of `Counters`."""


def tally(kernel: Kernel, flow: Flow) -> Tally:
    """Count the instructions of a kernel, block by block."""
    blocks = []
    for block in flow.blocks:
        own: Counter[str] = Counter()
        for instruction in kernel.body[block.start : block.stop]:
            own["warp_instructions"] += 1
            own[f"instructions.{class_of(instruction)}"] += 1
            if class_of(instruction) == "tensor":
                own["mma_operations"] += tensor_operations(kernel, instruction)
        blocks.append(own)
    names = tuple(sorted({name for own in blocks for name in own}))
    amounts = [[own[name] for name in names] for own in blocks]
    table = np.array(amounts, np.uint64).reshape(len(blocks), len(names))
    return Tally(names + _EVENTS, table)


def summarise(
    of_blocks: Tally, executions: Sequence[np.ndarray], events: Sequence[np.ndarray]
) -> Mapping[str, int]:
    """All counts of a launch.

    Args:
        of_blocks: The kernel's.
        executions: Of every thread, how often a warp ran each block.
        events: Of every thread, the fields of `Counters`, uint64.

    Returns:
        By name: those of the tally, and the fields of `Counters`.
    """
    amounts = of_blocks.amounts
    runs = sum(executions[1:], executions[0])
    found = sum(events[1:], events[0])
    run = runs[: len(amounts)] @ amounts
    return dict(zip(of_blocks.names, run.tolist() + found.tolist(), strict=True))


def count_access(
    writer: Writer, access: Access, size_bytes: int, stores: bool, atomic: bool = False
) -> None:
    """Count a memory instruction of a warp, if counting is on."""
    options = writer.read(access.context, Context, "options")
    with writer.when(writer.compare("ne", writer.both(options, COUNT_MEMORY), 0)):
        name = _counter(writer.module, size_bytes, stores, atomic)
        writer.call("void", name, *access.values())


def _counter(module: Module, size_bytes: int, stores: bool, atomic: bool) -> str:
    def build(writer: Writer, *parameters: Value) -> None:
        access = Access(*parameters)
        counters = writer.read(access.context, Context, "counters")
        bits = writer.bits(access.mask)
        lanes = writer.resize(writer.call("i32", "llvm.ctpop.i32", bits), "i64")
        moved = writer.mul(lanes, size_bytes)
        shared_window = writer.field(access.context, Context, "shared_window")
        shared = writer.compare("eq", access.window, shared_window)
        if atomic:
            _add(writer, counters, "atomics", lanes)
        with writer.when(shared):
            _add(writer, counters, "shared_bytes", moved)
            _add(writer, counters, "bank_conflicts", _conflicts(writer, access, size_bytes))
        with writer.when(writer.invert(shared)):
            _add(writer, counters, "stored_bytes" if stores else "loaded_bytes", moved)
            sectors = writer.shift_right(access.addresses, SECTOR_BITS)
            _add(writer, counters, "sectors", _distinct(writer, sectors, bits))
        writer.give()

    name = f"count.{size_bytes}.{stores:d}{atomic:d}"
    return module.function(name, "void", Access.parameters(), build)


def _add(writer: Writer, counters: Value, name: str, amount: Value) -> None:
    writer.write(
        counters, Counters, name, writer.add(writer.read(counters, Counters, name), amount)
    )


def _distinct(writer: Writer, numbers: Value, bits: Value) -> Value:
    """How many different numbers the given lanes hold, `i64`.

    Lanes usually ascend: then only a lane that differs from the one before it counts. Otherwise
    the numbers are taken one by one.
    """
    full = writer.compare("eq", bits, -1)
    before = writer.shuffle(numbers, [0, *range(LANES - 1)])
    falls = writer.any(writer.compare("ult", numbers, before))
    rising = writer.both(full, writer.invert(falls))
    steps = writer.bits(writer.compare("ne", numbers, before))
    steps = writer.resize(writer.call("i32", "llvm.ctpop.i32", steps), "i64")
    result = writer.variable(writer.add(steps, 1))
    with writer.when(writer.invert(rising)):
        writer.store(i64(0), result)
        with _each_distinct(writer, numbers, bits):
            writer.store(writer.add(writer.load("i64", result), 1), result)
    return writer.load("i64", result)


@contextmanager
def _each_distinct(writer: Writer, numbers: Value, bits: Value) -> Iterator[Value]:
    """A loop over the different numbers that the given lanes hold."""
    left, spread = writer.variable(bits), writer.variable(numbers)
    element = element_of(numbers.type)
    head, inside, after = (writer.name(x) for x in ("head", "inside", "after"))
    writer.jump(head)
    writer.label(head)
    current = writer.load("i32", left)
    writer.branch(writer.compare("ne", current, 0), inside, after)
    writer.label(inside)
    lane = writer.call("i32", "llvm.cttz.i32", current, constant("i1", 1))
    number = writer.load(element, writer.item(spread, element, writer.resize(lane, "i64")))
    same = writer.bits(writer.compare("eq", numbers, writer.splat(number)))
    writer.store(writer.both(current, writer.invert(same)), left)
    yield number
    writer.jump(head)
    writer.label(after)


def _may_conflict(writer: Writer, access: Access, units: Value, lanes: int) -> Value:
    """Whether two lanes of a phase of `lanes` use one group of banks, `i1`.

    Each lane sets the bit of its phase and group in a word, which has as many bits as there are.
    """
    groups = writer.both(units, lanes - 1)
    phases = constants("i32", [lane - lane % lanes for lane in range(LANES)])
    one = constant(vector("i32"), 1)
    own = writer.binary("shl", one, writer.add(groups, phases))
    own = writer.select(access.mask, own, constant(vector("i32"), 0))
    used = writer.call("i32", "llvm.vector.reduce.or.v32i32", own)
    active = writer.bits(access.mask)
    used, active = (writer.call("i32", "llvm.ctpop.i32", word) for word in (used, active))
    return writer.compare("ne", used, active)


def _conflicts(writer: Writer, access: Access, size_bytes: int) -> Value:
    """Extra passes through the banks of shared memory, `i64`.

    Wide accesses go in phases of as many lanes as fill the banks once; in a phase, different
    units in one group of banks take turns. It does not depend on where the first lane is, so an
    instruction remembers what it last found.
    """
    unit = max(size_bytes, _BANK_BYTES)
    lanes = _BANKS * _BANK_BYTES // unit
    units = writer.resize(writer.shift_right(access.addresses, unit.bit_length() - 1), "i32")
    first = writer.extract(units, 0)
    spread = writer.sub(units, writer.splat(first))
    sites = writer.read(access.context, Context, "sites")
    size = f"[{ctypes.sizeof(Site)} x i8]"
    site = writer.item(sites, size, writer.resize(access.site, "i64"))
    known = writer.field(site, Site, "known_units")
    active = writer.bits(access.mask)
    fresh = writer.any(writer.compare("ne", spread, writer.load(spread.type, known, 4)))
    others = writer.compare("ne", writer.read(site, Site, "known_lanes"), active)
    with writer.when(writer.either(fresh, others)):
        writer.store(spread, known, 4)
        writer.write(site, Site, "known_lanes", active)
        conflicts = _count_conflicts(writer, access, units, lanes)
        writer.write(site, Site, "known_conflicts", conflicts)
    return writer.read(site, Site, "known_conflicts")


def _count_conflicts(writer: Writer, access: Access, units: Value, lanes: int) -> Value:
    """Extra passes of an access whose lanes want units of memory, `lanes` of them in a phase."""
    total = writer.variable(i64(0))
    with writer.when(_may_conflict(writer, access, units, lanes)):
        firsts = _firsts(writer, units, writer.bits(access.mask), lanes)
        groups = writer.resize(writer.both(units, lanes - 1), "i8")
        users = [writer.bits(writer.compare("eq", groups, group)) for group in range(lanes)]
        for phase in range(LANES // lanes):
            window = ((1 << lanes) - 1) << (phase * lanes)
            longest = i32(1)
            for own in users:
                taken = writer.both(writer.both(own, firsts), window)
                turns = writer.call("i32", "llvm.ctpop.i32", taken)
                longest = writer.call("i32", "llvm.umax.i32", longest, turns)
            extra = writer.resize(writer.sub(longest, 1), "i64")
            writer.store(writer.add(writer.load("i64", total), extra), total)
    return writer.load("i64", total)


def _firsts(writer: Writer, units: Value, active: Value, lanes: int) -> Value:
    """Of the active lanes, those that are the first in their phase with their unit, `i32`."""
    narrow = writer.resize(units, "i16")  # shared memory has fewer than 2**16 words
    repeats = i32(0)
    for lane in range(LANES):
        before = (1 << lane) - (1 << (lane - lane % lanes))
        if not before:
            continue
        same = writer.bits(writer.compare("eq", narrow, writer.shuffle(narrow, [lane] * LANES)))
        known = writer.compare("ne", writer.both(writer.both(same, active), before), 0)
        repeated = writer.shift_left(writer.resize(known, "i32"), lane)
        repeats = writer.either(repeats, repeated)
    return writer.both(active, writer.invert(repeats))
