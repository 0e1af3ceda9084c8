"""Clusters of blocks: they begin together, run warp by warp in turns, and end together."""

from __future__ import annotations

from .cluster_barriers import leaver
from .cluster_memory import forget
from .cohort import note_change
from .emit import Module, Writer
from .layout import STOPS, Cluster, Context, Fiber
from .scheduler import (
    BlockState,
    UnitCalls,
    begin_next,
    exact_floats,
    fiber_at,
    restore_floats,
    run_round,
)
from .values import Value, constant, i32, i64, vector

ENTRY = "run_clusters"
"""External symbol: `void run_clusters(Context **, i64 clusters, i64 patience)`."""

ENDLESS_PATIENCE = (1 << 63) - 1
"""Where no loop polls, what is stuck is seen at once."""


def write_clusters(module: Module, units: UnitCalls | None) -> None:
    """Write `run_clusters` and what it needs.

    Contexts are those of one cluster after the other, by rank; each is given in `Context.peers`.
    """
    begin, turn = _beginner(module, units), _turner(module, units)

    def build(writer: Writer, clusters: Value, count: Value, limit: Value) -> None:
        saved = exact_floats(writer)
        quiet, before = writer.variable(i64(0)), writer.variable(i64(-1))
        with writer.repeat(count) as position:
            writer.call("void", begin, _first(writer, clusters, position))
        sweep, again, done = (writer.name(stem) for stem in ("sweep", "again", "done"))
        writer.jump(sweep)
        writer.label(sweep)
        alive, changes = writer.variable(i64(0)), writer.variable(i64(0))
        halted = writer.variable(constant("i1", 0))
        with writer.repeat(count) as position:
            context = _first(writer, clusters, position)
            state = writer.call("i32", turn, context)
            going = writer.compare("ne", state, int(BlockState.ENDED))
            _add(writer, alive, writer.resize(going, "i64"))
            stopped = writer.compare("ne", writer.read(context, Context, "stop"), 0)
            writer.store(writer.either(writer.load("i1", halted), stopped), halted)
            _add(writer, changes, _changes(writer, context))
        now = writer.load("i64", changes)
        same = writer.compare("eq", now, writer.load("i64", before))
        longer = writer.add(writer.load("i64", quiet), 1)
        writer.store(writer.select(same, longer, i64(0)), quiet)
        writer.store(now, before)
        none = writer.compare("eq", writer.load("i64", alive), 0)
        writer.branch(writer.either(none, writer.load("i1", halted)), done, again)
        writer.label(again)
        patient = writer.compare("ult", writer.load("i64", quiet), limit)
        lost = writer.name("lost")
        writer.branch(patient, sweep, lost)
        writer.label(lost)
        with writer.repeat(count) as position:
            _stop_all(writer, _first(writer, clusters, position), i32(STOPS.index("deadlock")))
        writer.jump(done)
        writer.label(done)
        restore_floats(writer, saved)
        writer.give()

    parameters = [("ptr", "clusters"), ("i64", "count"), ("i64", "limit")]
    module.function(ENTRY, "void", parameters, build, linkage="")


def _first(writer: Writer, clusters: Value, position: Value) -> Value:
    """The context of a cluster's first block."""
    return writer.load("ptr", writer.item(clusters, "ptr", position))


def _member(writer: Writer, context: Value, rank: Value) -> Value:
    peers = writer.read(context, Context, "peers")
    return writer.load("ptr", writer.item(peers, "ptr", writer.resize(rank, "i64")))


def _add(writer: Writer, place: Value, amount: Value) -> None:
    writer.store(writer.add(writer.load("i64", place), amount), place)


def _changes(writer: Writer, context: Value) -> Value:
    total = writer.variable(i64(0))
    with writer.repeat(writer.read(context, Context, "cluster_size")) as rank:
        _add(writer, total, writer.read(_member(writer, context, rank), Context, "changes"))
    return writer.load("i64", total)


def _stop_all(writer: Writer, context: Value, why: Value) -> None:
    with writer.repeat(writer.read(context, Context, "cluster_size")) as rank:
        writer.write(_member(writer, context, rank), Context, "stop", why)


def _beginner(module: Module, units: UnitCalls | None) -> str:
    """`begin(context)`: the blocks of the next cluster begin, if one is left."""
    take = begin_next(module, units, leaver(module))

    def build(writer: Writer, context: Value) -> None:
        size = writer.read(context, Context, "cluster_size")
        cluster = writer.read(context, Context, "cluster")
        for name in ("phase", "arrived"):
            writer.write(cluster, Cluster, name, 0)
        warps = writer.read(context, Context, "warps")
        writer.write(cluster, Cluster, "warps", writer.mul(warps, size))
        with writer.repeat(size) as rank:
            own = _member(writer, context, rank)
            writer.write(own, Context, "active", writer.call("i32", take, own))
            writer.write(own, Context, "live", warps)
            writer.write(own, Context, "ordered_epoch", writer.read(own, Context, "epoch"))
            forget(writer, own)
            with writer.repeat(warps) as warp:
                fiber = fiber_at(writer, own, warp)
                for name in ("cluster_lanes", "cluster_phase"):
                    writer.write(fiber, Fiber, name, 0)
        writer.give()

    return module.function("cluster.begin", "void", [("ptr", "context")], build)


def _turner(module: Module, units: UnitCalls | None) -> str:
    """`i32 turn(context)`: every warp of a cluster that can goes on; gives a `BlockState`.

    Units have their turn when no block can go on. A cluster that has ended makes room for the next.
    """
    round_, begin = run_round(module), _beginner(module, units)

    def build(writer: Writer, context: Value) -> None:
        cluster = writer.read(context, Context, "cluster")
        size = writer.read(context, Context, "cluster_size")
        start = writer.read(cluster, Cluster, "first")
        state, stop = writer.variable(i32(BlockState.ENDED)), writer.variable(i32(0))
        with writer.repeat(size) as position:
            rank = writer.binary("urem", writer.add(position, start), size)
            own = _member(writer, context, rank)
            with writer.when(writer.compare("ne", writer.read(own, Context, "active"), 0)):
                _take_turn(writer, own, writer.call("i32", round_, own), units, state)
            why = writer.read(own, Context, "stop")
            known = writer.load("i32", stop)
            writer.store(writer.call("i32", "llvm.umax.i32", known, why), stop)
        if units is not None:
            with writer.when(_is(writer, state, BlockState.STUCK)):
                done = writer.call("i32", units.advance, context)
                with writer.when(writer.compare("ne", done, 0)):
                    writer.store(i32(BlockState.MOVED), state)
        with writer.when(_is(writer, state, BlockState.STUCK)):
            writer.store(i32(STOPS.index("deadlock")), stop)
        why = writer.load("i32", stop)
        stopped = writer.compare("ne", why, 0)
        with writer.when(stopped):
            _stop_all(writer, context, why)
        over = writer.both(_is(writer, state, BlockState.ENDED), writer.invert(stopped))
        with writer.when(over):
            writer.call("void", begin, context)
            more = writer.compare("ne", writer.read(context, Context, "active"), 0)
            with writer.when(more):
                note_change(writer, context, constant(vector("i1"), 1))
                writer.store(i32(BlockState.MOVED), state)
        writer.give(writer.load("i32", state))

    return module.function("cluster.turn", "i32", [("ptr", "context")], build)


def _is(writer: Writer, state: Value, which: BlockState) -> Value:
    return writer.compare("eq", writer.load("i32", state), int(which))


def _take_turn(
    writer: Writer, context: Value, found: Value, units: UnitCalls | None, state: Value
) -> None:
    """Add a block's state to that of the cluster: one that moves or ends has moved it."""
    ended = writer.compare("eq", found, int(BlockState.ENDED))
    with writer.when(ended):
        if units is not None:
            writer.call("i32", units.end, context)
        writer.write(context, Context, "active", 0)
    moved = writer.compare("ne", found, int(BlockState.STUCK))
    before = writer.load("i32", state)
    had_moved = writer.compare("eq", before, int(BlockState.MOVED))
    any_moved = writer.either(moved, had_moved)
    writer.store(writer.select(any_moved, i32(BlockState.MOVED), i32(BlockState.STUCK)), state)
