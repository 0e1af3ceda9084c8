"""Running blocks in native code: warps as fibers or one after another, barriers, deadlocks."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass
from enum import IntEnum

from .emit import Module, Writer
from .fibers import give_way, prepare, switch
from .layout import BARRIERS, STOPS, Barrier, Context, Fiber, Site
from .phase_state import is_held
from .values import Value, constant, i32, i64

ENTRY = "run_blocks"
"""External symbol: `void run_blocks(Context *)` takes blocks until none is left."""

POISON = 0xFF
"""Byte that shared memory holds before anyone writes it."""

_EPOCH_LIMIT = 1 << 23
"""A quarter of what fits into a mark: a block begins epochs, too, and one bit is for clusters."""

_DEFAULT_MXCSR = 0x1F80


def write_entry(module: Module, uses_fibers: bool, units: UnitCalls | None = None) -> None:
    """Write `run_blocks` and what it needs; `@warp(context, fiber)` is the kernel.

    Args:
        module: Where to write it.
        uses_fibers: Whether warps wait for each other.
        units: Functions of the units that work beside the warps, if the kernel uses any.
    """
    run = _fiber_block(module, units) if uses_fibers else _sequential_block(module)

    def build(writer: Writer, context: Value) -> None:
        saved = exact_floats(writer)
        head, inside, after = (writer.name(x) for x in ("head", "inside", "after"))
        writer.jump(head)
        writer.label(head)
        more = writer.call("i32", take_block(module), context)
        writer.branch(writer.compare("ne", more, 0), inside, after)
        writer.label(inside)
        writer.call("void", run, context)
        writer.jump(head)
        writer.label(after)
        restore_floats(writer, saved)
        writer.give()

    module.function(ENTRY, "void", [("ptr", "context")], build, linkage="")


def take_block(module: Module) -> str:
    """The function `i32 take(context)`: prepare the next block; 0 where none is left."""

    def build(writer: Writer, context: Value) -> None:
        counter = writer.read(context, Context, "next_block")
        count = writer.read(context, Context, "order_count")
        order = writer.read(context, Context, "order")
        position = writer.op("i64", f"atomicrmw add {counter}, i64 1 monotonic")
        stopped = writer.compare("ne", writer.read(context, Context, "stop"), 0)
        more = writer.compare("ult", position, count)
        found = writer.both(more, writer.invert(stopped))
        with writer.when(found):
            block = writer.load("i32", writer.item(order, "i32", position))
            _enter_block(writer, context, block)
        writer.give(writer.resize(found, "i32"))

    return module.function("block.take", "i32", [("ptr", "context")], build)


def begin_next(module: Module, units: UnitCalls | None, leave: str | None = None) -> str:
    """The function `i32 begin(context)`: take a block and make its fibers; 0 where none is left.

    Args:
        module: Where to write it.
        units: See `write_entry`.
        leave: The function `leave(context, fiber)` that a warp calls as its last.
    """
    body = _fiber_body(module, leave)

    def build(writer: Writer, context: Value) -> None:
        more = writer.call("i32", take_block(module), context)
        with writer.when(writer.compare("ne", more, 0)):
            _make_fibers(writer, context, body)
            if units is not None:
                writer.call("i32", units.begin, context)
        writer.give(more)

    return module.function("block.begin", "i32", [("ptr", "context")], build)


def exact_floats(writer: Writer) -> Value:
    """Round to nearest and keep subnormals in this thread; gives what was set before."""
    if platform.machine() in ("x86_64", "AMD64"):
        saved = writer.slot("i32")
        writer.call("void", "llvm.x86.sse.stmxcsr", saved)
        writer.call("void", "llvm.x86.sse.ldmxcsr", writer.variable(i32(_DEFAULT_MXCSR)))
        return saved
    before = writer.call("i64", "llvm.aarch64.get.fpcr")
    writer.call("void", "llvm.aarch64.set.fpcr", i64(0))
    return before


def restore_floats(writer: Writer, saved: Value) -> None:
    """Set back what `exact_floats` gave."""
    if saved.type == "ptr":
        writer.call("void", "llvm.x86.sse.ldmxcsr", saved)
    else:
        writer.call("void", "llvm.aarch64.set.fpcr", saved)


def barrier(module: Module) -> str:
    """The function `barrier(ptr context, ptr fiber, i32 number, i32 threads, i1 wait)`."""

    def build(
        writer: Writer, context: Value, fiber: Value, number: Value, threads: Value, wait: Value
    ) -> None:
        own = barrier_at(writer, context, number)
        arrived = writer.add(writer.read(own, Barrier, "arrived"), 32)
        generation = writer.read(own, Barrier, "generation")
        complete = writer.compare("uge", arrived, threads)
        writer.write(own, Barrier, "arrived", writer.select(complete, i32(0), arrived))
        step = writer.resize(complete, "i32")
        writer.write(own, Barrier, "generation", writer.add(generation, step))
        epoch = writer.read(context, Context, "epoch")
        writer.write(context, Context, "epoch", writer.add(epoch, step))
        with writer.when(writer.both(writer.invert(complete), wait)):
            writer.write(fiber, Fiber, "waiting", writer.add(number, 1))
            writer.write(fiber, Fiber, "generation", generation)
            writer.call("void", give_way(module), context)
        writer.give()

    parameters = [("ptr", "context"), ("ptr", "fiber"), ("i32", "number"), ("i32", "threads")]
    return module.function("warp.barrier", "void", [*parameters, ("i1", "wait")], build)


def barrier_at(writer: Writer, context: Value, number: Value) -> Value:
    """The `Barrier` of a number."""
    barriers = writer.read(context, Context, "barriers")
    index = writer.both(writer.resize(number, "i64"), BARRIERS - 1)
    return writer.item(barriers, _bytes(Barrier), index)


def _enter_block(writer: Writer, context: Value, block: Value) -> None:
    writer.write(context, Context, "block", block)
    x = writer.read(context, Context, "grid_x")
    y = writer.read(context, Context, "grid_y")
    rest = writer.binary("udiv", block, x)
    writer.write(context, Context, "block_x", writer.binary("urem", block, x))
    writer.write(context, Context, "block_y", writer.binary("urem", rest, y))
    writer.write(context, Context, "block_z", writer.binary("udiv", rest, y))
    writer.write(context, Context, "acquired", 0)
    shared = writer.field(context, Context, "shared_window")
    size = writer.read(shared, Site, "size")
    with writer.when(writer.compare("ne", size, 0)):
        _fill(writer, writer.read(shared, Site, "host"), POISON, size)
        defined = writer.read(shared, Site, "defined")
        with writer.when(writer.compare("ne", defined, 0)):
            _fill(writer, defined, 0, size)
    _next_epoch(writer, context, shared, size)
    barriers = writer.cast("ptrtoint", writer.read(context, Context, "barriers"), "i64")
    with writer.when(writer.compare("ne", barriers, 0)):
        _fill(writer, barriers, 0, i64(BARRIERS * ctypes.sizeof(Barrier)))


def _next_epoch(writer: Writer, context: Value, shared: Value, size: Value) -> None:
    """Begin an epoch; before the numbers run out, forget the shadow and count from one again."""
    epoch = writer.add(writer.read(context, Context, "epoch"), 1)
    full = writer.compare("ugt", epoch, _EPOCH_LIMIT)
    writer.write(context, Context, "epoch", writer.select(full, i32(1), epoch))
    shadow = writer.read(shared, Site, "shadow")
    with writer.when(writer.both(full, writer.compare("ne", shadow, 0))):
        granule = writer.resize(writer.read(context, Context, "shared_granule_bits"), "i64")
        cells = writer.binary("lshr", size, granule)
        _fill(writer, shadow, 0, writer.mul(cells, 8))


def _fill(writer: Writer, address: Value, byte: int, size: Value) -> None:
    place = writer.cast("inttoptr", address, "ptr")
    writer.call("void", "llvm.memset.p0.i64", place, constant("i8", byte), size,
                constant("i1", 0))  # fmt: skip


def fiber_at(writer: Writer, context: Value, warp: Value) -> Value:
    """The `Fiber` of a warp."""
    fibers = writer.read(context, Context, "fibers")
    return writer.item(fibers, _bytes(Fiber), writer.resize(warp, "i64"))


def _reset_fiber(writer: Writer, context: Value, fiber: Value, warp: Value) -> None:
    writer.write(fiber, Fiber, "warp", warp)
    writer.write(fiber, Fiber, "context", context)
    writer.store(i64(0), writer.field(fiber, Fiber, "phase"))
    for name in (
        "done",
        "waiting",
        "polling",
        "polled",
        "passed",
        "held_at",
        "bulk_group",
        "product_group",
        "copies_first",
        "copies_count",
        "group",
    ):
        writer.write(fiber, Fiber, name, 0)


def _sequential_block(module: Module) -> str:
    """Blocks whose warps never wait for each other run on the caller's stack."""

    def build(writer: Writer, context: Value) -> None:
        with writer.repeat(writer.read(context, Context, "warps")) as warp:
            fiber = fiber_at(writer, context, warp)
            _reset_fiber(writer, context, fiber, warp)
            writer.write(context, Context, "current", fiber)
            going = writer.compare("eq", writer.read(context, Context, "stop"), 0)
            with writer.when(going):
                writer.call("void", "warp", context, fiber)
        writer.give()

    return module.function("block.run", "void", [("ptr", "context")], build)


class BlockState(IntEnum):
    """Of a block after every warp had its turn."""

    ENDED = 0
    MOVED = 1
    STUCK = 2
    """All its warps wait at barriers that nobody else will reach."""


@dataclass(frozen=True, slots=True)
class UnitCalls:
    """Functions of the units that work beside the warps, each `i32 call(context)`."""

    begin: str
    """Called when a block begins."""
    advance: str
    """Called when no warp can go on: does one thing, or gives 0 if there is nothing to do."""
    end: str
    """Called when a block's warps have ended."""


def advanced_state(writer: Writer, context: Value, state: Value, units: UnitCalls | None) -> Value:
    """A block's state after a round, once its units had their turn if its warps were stuck."""
    if units is None:
        return state
    result = writer.variable(state)
    with writer.when(writer.compare("eq", state, int(BlockState.STUCK))):
        done = writer.call("i32", units.advance, context)
        with writer.when(writer.compare("ne", done, 0)):
            writer.store(i32(BlockState.MOVED), result)
    with writer.when(writer.compare("eq", state, int(BlockState.ENDED))):
        writer.call("i32", units.end, context)
    return writer.load("i32", result)


def _fiber_block(module: Module, units: UnitCalls | None) -> str:
    body, round_ = _fiber_body(module), run_round(module)

    def build(writer: Writer, context: Value) -> None:
        _make_fibers(writer, context, body)
        if units is not None:
            writer.call("i32", units.begin, context)
        again, over = writer.name("again"), writer.name("over")
        writer.jump(again)
        writer.label(again)
        state = advanced_state(writer, context, writer.call("i32", round_, context), units)
        writer.branch(writer.compare("eq", state, int(BlockState.MOVED)), again, over)
        writer.label(over)
        with writer.when(writer.compare("eq", state, int(BlockState.STUCK))):
            writer.write(context, Context, "stop", STOPS.index("deadlock"))
        writer.give()

    return module.function("block.run", "void", [("ptr", "context")], build)


def _make_fibers(writer: Writer, context: Value, body: str) -> None:
    with writer.repeat(writer.read(context, Context, "warps")) as warp:
        fiber = fiber_at(writer, context, warp)
        _reset_fiber(writer, context, fiber, warp)
        tops = writer.read(context, Context, "stack_tops")
        top = writer.load("ptr", writer.item(tops, "ptr", writer.resize(warp, "i64")))
        prepare(writer, fiber, top, Value("ptr", f"@{body}"))


def run_round(module: Module) -> str:
    """The function `i32 round(context)`: every warp that can goes on; gives a `BlockState`."""

    def build(writer: Writer, context: Value) -> None:
        live, moved = writer.variable(i32(0)), writer.variable(i32(0))
        with writer.repeat(writer.read(context, Context, "warps")) as warp:
            _resume(writer, context, fiber_at(writer, context, warp), live, moved)
        stopped = writer.compare("ne", writer.read(context, Context, "stop"), 0)
        none = writer.compare("eq", writer.load("i32", live), 0)
        still = writer.compare("eq", writer.load("i32", moved), 0)
        state = writer.select(still, i32(BlockState.STUCK), i32(BlockState.MOVED))
        ended = writer.either(stopped, none)
        writer.give(writer.select(ended, i32(BlockState.ENDED), state))

    return module.function("block.round", "i32", [("ptr", "context")], build)


def _resume(writer: Writer, context: Value, fiber: Value, live: Value, moved: Value) -> None:
    """Let a warp run until it waits, unless it is done or still has to wait."""
    stopped = writer.compare("ne", writer.read(context, Context, "stop"), 0)
    done = writer.compare("ne", writer.read(fiber, Fiber, "done"), 0)
    with writer.when(writer.invert(writer.either(stopped, done))):
        writer.store(writer.add(writer.load("i32", live), 1), live)
        number = writer.read(fiber, Fiber, "waiting")
        own = barrier_at(writer, context, writer.sub(number, 1))
        same = writer.compare(
            "eq", writer.read(own, Barrier, "generation"), writer.read(fiber, Fiber, "generation")
        )
        held = writer.both(same, writer.compare("ne", number, 0))
        held = writer.either(held, is_held(writer, fiber))
        with writer.when(writer.invert(held)):
            writer.store(writer.add(writer.load("i32", moved), 1), moved)
            writer.write(fiber, Fiber, "waiting", 0)
            writer.write(context, Context, "current", fiber)
            slot = writer.field(context, Context, "scheduler_stack")
            stack = writer.read(fiber, Fiber, "stack")
            switch(writer, slot, stack)


def _fiber_body(module: Module, leave: str | None = None) -> str:
    def build(writer: Writer, fiber: Value) -> None:
        context = writer.read(fiber, Fiber, "context")
        writer.call("void", "warp", context, fiber)
        if leave is not None:
            writer.call("void", leave, context, fiber)
        writer.write(fiber, Fiber, "done", 1)
        again = writer.name("again")
        writer.jump(again)
        writer.label(again)
        writer.call("void", give_way(module), context)
        writer.jump(again)

    return module.function("fiber.body", "void", [("ptr", "fiber")], build)


def _bytes(structure: type[ctypes.Structure]) -> str:
    return f"[{ctypes.sizeof(structure)} x i8]"
