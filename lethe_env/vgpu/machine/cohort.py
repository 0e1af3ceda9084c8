"""Blocks that run at the same time, for kernels whose threads wait for each other in loops.

Every block of a cohort has a context of its own. Where a loop that polls begins, a warp gives way,
so all warps of all blocks in the cohort take turns. When all of them have had several
turns, and neither memory nor the registers of any loop have changed, nothing ever will: a deadlock.
"""

from __future__ import annotations

from ..ptx.model import Kernel
from ..ptx.polling import PollingLoop
from .emit import Module, Writer
from .fibers import give_way
from .layout import STOPS, Context, Fiber
from .lowering import Lowering
from .scheduler import (
    BlockState,
    UnitCalls,
    advanced_state,
    begin_next,
    exact_floats,
    restore_floats,
    run_round,
)
from .values import Value, constant, i32, i64, is_vector, vector

ENTRY = "run_cohort"
"""External symbol: `void run_cohort(Context **, i64 count, i64 patience)`."""

_ROUNDS = 64


def patience(barriers: int) -> int:
    """Rounds in which nothing changes that prove a deadlock.

    Every warp has then polled several times with the same registers and the same memory, however
    many of the kernel's barriers lie between two polls.
    """
    return _ROUNDS + 4 * barriers


def watch(lowering: Lowering, loop: PollingLoop) -> None:
    """Write what happens where a loop that polls begins: others get their turn.

    A round that begins with other registers than the one before counts as a change.
    """
    registers, writer = lowering.registers, lowering.writer
    changed = constant("i1", int(loop.timed))
    for name in loop.carried:
        value = registers.current(name)
        before = writer.slot(value.type, initial=constant(value.type, 0))
        differs = writer.compare("ne", value, writer.load(value.type, before))
        if is_vector(differs.type):
            differs = writer.any(differs)
        changed = writer.either(changed, differs)
        writer.store(value, before)
    function = _pause(writer.module)
    writer.call("void", function, lowering.context, lowering.fiber, i32(loop.read), changed)


def note_barrier(lowering: Lowering) -> None:
    """Count barriers since the last poll: more than the kernel has are a change."""
    writer, fiber = lowering.writer, lowering.fiber
    passed = writer.add(writer.read(fiber, Fiber, "passed"), 1)
    writer.write(fiber, Fiber, "passed", passed)
    many = writer.compare("ugt", passed, barriers_of(lowering.kernel))
    _increase_changes(writer, lowering.context, many)


def barriers_of(kernel: Kernel) -> int:
    """Barriers in the text of a kernel."""
    return sum(instruction.opcode[0] in ("bar", "barrier") for instruction in kernel.body)


def _pause(module: Module) -> str:
    """The function `pause(context, fiber, place, changed)`."""

    def build(writer: Writer, context: Value, fiber: Value, place: Value, changed: Value) -> None:
        elsewhere = writer.compare("ne", writer.read(fiber, Fiber, "polled"), place)
        _increase_changes(writer, context, writer.either(changed, elsewhere))
        writer.write(fiber, Fiber, "polled", place)
        writer.write(fiber, Fiber, "passed", 0)
        writer.write(fiber, Fiber, "polling", writer.add(place, 1))
        writer.call("void", give_way(module), context)
        writer.write(fiber, Fiber, "polling", 0)
        writer.give()

    parameters = [("ptr", "context"), ("ptr", "fiber"), ("i32", "place"), ("i1", "changed")]
    return module.function("warp.pause", "void", parameters, build)


def note_change(writer: Writer, context: Value, changed: Value) -> None:
    """Count that lanes of a mask have changed memory that others may look at."""
    _increase_changes(writer, context, writer.any(changed))


def _increase_changes(writer: Writer, context: Value, changed: Value) -> None:
    amount = writer.resize(changed, "i64")
    total = writer.add(writer.read(context, Context, "changes"), amount)
    writer.write(context, Context, "changes", total)


def changed_by_atomic(
    writer: Writer, operation: str, mask: Value, old: Value, given: tuple[Value, Value]
) -> Value:
    """Lanes whose atomic operation may have changed memory; polling ones have not."""
    value, desired = given
    zero = constant(value.type, 0)
    match operation:
        case "cas":
            hit = writer.compare("eq", old, value)
            changed = writer.both(hit, writer.compare("ne", desired, value))
        case "exch":
            changed = writer.compare("ne", old, value)
        case "or":
            changed = writer.compare("ne", writer.either(old, value), old)
        case "and":
            changed = writer.compare("ne", writer.both(old, value), old)
        case "add" | "xor":
            changed = writer.compare("ne", value, zero)
        case _:
            changed = constant(vector("i1"), 1)
    return writer.both(changed, mask)


def write_cohort(module: Module, units: UnitCalls | None = None) -> None:
    """Write `run_cohort` and what it needs; see `scheduler.write_entry`."""
    begin, round_ = begin_next(module, units), run_round(module)

    def build(writer: Writer, contexts: Value, count: Value, limit: Value) -> None:
        saved = exact_floats(writer)
        quiet, before = writer.variable(i64(0)), writer.variable(i64(-1))
        with writer.repeat(count) as position:
            context = _context(writer, contexts, position)
            writer.write(context, Context, "active", writer.call("i32", begin, context))
        sweep, again, done = (writer.name(stem) for stem in ("sweep", "again", "done"))
        writer.jump(sweep)
        writer.label(sweep)
        alive, halted, changes = (writer.variable(i64(0)) for _ in range(3))
        with writer.repeat(count) as position:
            context = _context(writer, contexts, position)
            with writer.when(writer.compare("ne", writer.read(context, Context, "active"), 0)):
                _turn(writer, context, begin, round_, units, alive, halted)
            _increase(writer, changes, writer.read(context, Context, "changes"))
        _wait_for_change(writer, quiet, before, writer.load("i64", changes))
        idle = writer.compare("eq", writer.load("i64", alive), 0)
        over = writer.either(idle, writer.compare("ne", writer.load("i64", halted), 0))
        writer.branch(over, done, again)
        writer.label(again)
        lost = writer.name("lost")
        patient = writer.compare("ult", writer.load("i64", quiet), limit)
        writer.branch(patient, sweep, lost)
        writer.label(lost)
        with writer.repeat(count) as position:
            context = _context(writer, contexts, position)
            with writer.when(writer.compare("ne", writer.read(context, Context, "active"), 0)):
                writer.write(context, Context, "stop", STOPS.index("deadlock"))
        writer.jump(done)
        writer.label(done)
        restore_floats(writer, saved)
        writer.give()

    parameters = [("ptr", "contexts"), ("i64", "count"), ("i64", "limit")]
    module.function(ENTRY, "void", parameters, build, linkage="")


def _context(writer: Writer, contexts: Value, position: Value) -> Value:
    return writer.load("ptr", writer.item(contexts, "ptr", position))


def _increase(writer: Writer, place: Value, amount: Value) -> None:
    writer.store(writer.add(writer.load("i64", place), amount), place)


def _turn(
    writer: Writer,
    context: Value,
    begin: str,
    round_: str,
    units: UnitCalls | None,
    alive: Value,
    halted: Value,
) -> None:
    """One round of a block; a block that has ended makes room for the next."""
    state = advanced_state(writer, context, writer.call("i32", round_, context), units)
    with writer.when(writer.compare("eq", state, int(BlockState.STUCK))):
        writer.write(context, Context, "stop", STOPS.index("deadlock"))
    stopped = writer.compare("ne", writer.read(context, Context, "stop"), 0)
    _increase(writer, halted, writer.resize(stopped, "i64"))
    ended = writer.compare("eq", state, int(BlockState.ENDED))
    with writer.when(writer.both(ended, writer.invert(stopped))):
        note_change(writer, context, constant(vector("i1"), 1))
        writer.write(context, Context, "active", writer.call("i32", begin, context))
    active = writer.resize(writer.read(context, Context, "active"), "i64")
    _increase(writer, alive, active)


def _wait_for_change(writer: Writer, quiet: Value, before: Value, changes: Value) -> None:
    same = writer.compare("eq", changes, writer.load("i64", before))
    longer = writer.add(writer.load("i64", quiet), 1)
    writer.store(writer.select(same, longer, i64(0)), quiet)
    writer.store(changes, before)
