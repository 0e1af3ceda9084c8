"""What happens to an `mbarrier`: functions that kernels and units call.

Each takes the context of the block that acts, and that of the block whose barrier it is.
"""

from __future__ import annotations

from . import shadow
from .cluster_memory import home_access, is_foreign, order, touch
from .emit import Module, Writer
from .fibers import give_way
from .layout import Context, Fiber, Site
from .phase_state import (
    BYTES_BIT,
    COUNT_BITS,
    MADE_BIT,
    PARITY_BIT,
    REMOTE_BIT,
    is_pending,
)
from .values import Value, constant, declared, i32, i64
from .windows import OUT_OF_BOUNDS, UNINITIALISED_READ, report

BARRIER_BYTES = 8
_WORDS = 2
_COUNT = (1 << COUNT_BITS) - 1


def _place_of(
    writer: Writer, context: Value, home: Value, offset: Value, site: Value
) -> tuple[Value, Value]:
    """Host address of a barrier, and whether it lies in its block's memory; reports if not."""
    window = writer.field(home, Context, "shared_window")
    size = writer.read(window, Site, "size")
    fits = writer.compare("ult", offset, size)
    fits = writer.both(fits, writer.compare("ule", writer.add(offset, BARRIER_BYTES), size))
    with writer.when(writer.invert(fits)):
        access = home_access(writer, context, home, offset, site)
        report(writer, access, OUT_OF_BOUNDS, i32(1), i64(BARRIER_BYTES))
    safe = writer.select(fits, offset, i64(0))
    host = writer.add(writer.read(window, Site, "host"), safe)
    return writer.cast("inttoptr", host, "ptr"), fits


def _load(
    writer: Writer, context: Value, home: Value, offset: Value, site: Value, quiet: bool = False
) -> tuple[Value, Value, Value]:
    """Place and word of a barrier, and whether it has been made; reports if not."""
    place, fits = _place_of(writer, context, home, offset, site)
    word = writer.load("i64", place, 1)
    flag = writer.both(writer.shift_right(word, MADE_BIT), 1)
    # Shared memory that nobody has written is all ones, and so many arrivals cannot be asked for.
    fresh = writer.compare("eq", word, -1)
    made = writer.both(writer.compare("ne", flag, 0), writer.invert(fresh))
    access = home_access(writer, context, home, offset, site)
    foreign = is_foreign(writer, context, home)
    if not quiet:
        with writer.when(writer.both(fits, writer.invert(made))):
            report(writer, access, UNINITIALISED_READ, i32(1), i64(0))
        with writer.when(writer.both(writer.both(fits, made), writer.invert(foreign))):
            shadow.before_load(writer, access, 32, _WORDS)
    with writer.when(writer.both(fits, foreign)):
        size = i64(BARRIER_BYTES)
        touch(writer, context, home, offset, size, shadow.Touch.READ, site)
    return place, word, writer.both(fits, made)


def maker(module: Module) -> str:
    """`i64 make(context, home, offset, count, site)`."""

    def build(
        writer: Writer, context: Value, home: Value, offset: Value, count: Value, site: Value
    ) -> None:
        place, fits = _place_of(writer, context, home, offset, site)
        kept = writer.both(count, _COUNT)
        word = writer.either(kept, writer.shift_left(kept, COUNT_BITS))
        word = writer.either(word, 1 << MADE_BIT)
        with writer.when(fits):
            access = home_access(writer, context, home, offset, site)
            shadow.complete_copy(writer, access, _WORDS)
            writer.store(word, place, 1)
        writer.give(word)

    parameters = declared("ptr context, ptr home, i64 offset, i64 count, i32 site")
    return module.function("phase.make", "i64", parameters, build)


def unmaker(module: Module) -> str:
    """`i64 unmake(context, home, offset, site)`."""

    def build(writer: Writer, context: Value, home: Value, offset: Value, site: Value) -> None:
        place, _, made = _load(writer, context, home, offset, site)
        with writer.when(made):
            access = home_access(writer, context, home, offset, site)
            shadow.issue_copy(writer, access, _WORDS)
            writer.store(i64(-1), place, 1)
        writer.give(i64(0))

    parameters = declared("ptr context, ptr home, i64 offset, i32 site")
    return module.function("phase.unmake", "i64", parameters, build)


def checker(module: Module) -> str:
    """`check(context, home, offset, site)`: report a barrier that has not been made."""

    def build(writer: Writer, context: Value, home: Value, offset: Value, site: Value) -> None:
        _load(writer, context, home, offset, site)
        writer.give()

    parameters = declared("ptr context, ptr home, i64 offset, i32 site")
    return module.function("phase.check", "void", parameters, build)


def arriver(module: Module, quiet: bool = False) -> str:
    """`i64 arrive(context, home, offset, count, bytes, site)`: gives the state before.

    `bytes` are expected beside, or if it is negative, have come. A `quiet` arrival at a barrier
    that is no more is nothing to speak of.
    """

    def build(writer: Writer, context: Value, home: Value, offset: Value, count: Value,
              size: Value, site: Value) -> None:  # fmt: skip
        place, word, made = _load(writer, context, home, offset, site, quiet)
        with writer.when(made):
            remote = writer.resize(is_foreign(writer, context, home), "i64")
            new = writer.either(word, writer.shift_left(remote, REMOTE_BIT))
            fewer = writer.both(writer.sub(writer.both(new, _COUNT), count), _COUNT)
            new = writer.either(writer.both(new, ~_COUNT), fewer)
            new = writer.add(new, writer.shift_left(size, BYTES_BIT))
            idle = writer.compare("eq", writer.shift_right(new, BYTES_BIT), 0)
            complete = writer.both(idle, writer.compare("eq", fewer, 0))
            writer.store(new, place, 1)
            with writer.when(complete):
                _turn(writer, home, place, new)
            changes = writer.read(context, Context, "changes")
            writer.write(context, Context, "changes", writer.add(changes, 1))
        writer.give(word)

    parameters = declared("ptr context, ptr home, i64 offset, i64 count, i64 bytes, i32 site")
    name = "phase.arrive.quiet" if quiet else "phase.arrive"
    return module.function(name, "i64", parameters, build)


def _turn(writer: Writer, home: Value, place: Value, word: Value) -> None:
    """The next phase begins, and with it an epoch."""
    remote = writer.both(word, 1 << REMOTE_BIT)
    expected = writer.both(writer.shift_right(word, COUNT_BITS), _COUNT)
    kept = writer.both(word, ~(1 << REMOTE_BIT))
    turned = writer.binary("xor", writer.either(kept, expected), i64(1 << PARITY_BIT))
    writer.store(turned, place, 1)
    alone = writer.compare("eq", remote, 0)
    with writer.when(alone):
        epoch = writer.read(home, Context, "epoch")
        writer.write(home, Context, "epoch", writer.add(epoch, 1))
    with writer.when(writer.invert(alone)):
        order(writer, home)


def waiter(module: Module, blocks: bool) -> str:
    """`i1 wait(context, fiber, offset, parity, instruction, site)`: whether a phase has passed.

    A waiting warp gives way until the phase with that parity has completed.
    """

    def build(
        writer: Writer, context: Value, fiber: Value, offset: Value, parity: Value,
        instruction: Value, site: Value,
    ) -> None:  # fmt: skip
        place, word, made = _load(writer, context, context, offset, site)
        held = writer.both(made, is_pending(writer, word, parity))
        if blocks:
            with writer.when(held):
                writer.write(fiber, Fiber, "phase", place)
                writer.write(fiber, Fiber, "parity", parity)
                writer.write(fiber, Fiber, "held_at", writer.add(instruction, 1))
                writer.call("void", give_way(module), context)
                writer.write(fiber, Fiber, "held_at", 0)
                writer.store(i64(0), writer.field(fiber, Fiber, "phase"))
            writer.give(constant("i1", 1))
        else:
            writer.give(writer.invert(held))

    parameters = declared(
        "ptr context, ptr fiber, i64 offset, i64 parity, i32 instruction, i32 site"
    )
    name = "phase.wait" if blocks else "phase.test"
    return module.function(name, "i1", parameters, build)


def write_all(module: Module) -> None:
    """Write what kernels call."""
    for function in (maker, unmaker, arriver, checker):
        function(module)
    for blocks in (True, False):
        waiter(module, blocks)
