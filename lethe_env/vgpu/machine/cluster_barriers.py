"""The barrier of a cluster: all its threads that have not ended meet there."""

from __future__ import annotations

from .cluster_memory import home_access, order, report_ended
from .emit import Module, Writer
from .fibers import give_way
from .layout import Cluster, Context, Fiber, Site
from .phase_state import PARITY_BIT, is_pending
from .values import LANES, Value, constant, declared, i32, i64, vector
from .windows import BARRIER, Access, report

TWICE, UNARRIVED = 1, 2
"""What a finding tells: lanes have arrived already, or they wait without having arrived."""


def arriver(module: Module) -> str:
    """`arrive(context, fiber, lanes, site)`: lanes of a warp arrive, `i32` by their bits."""

    def build(writer: Writer, context: Value, fiber: Value, lanes: Value, site: Value) -> None:
        cluster = writer.read(context, Context, "cluster")
        held = writer.read(fiber, Fiber, "cluster_lanes")
        _report_lanes(writer, context, writer.both(held, lanes), site, TWICE)
        fresh = writer.both(lanes, writer.invert(held))
        writer.write(fiber, Fiber, "cluster_lanes", writer.either(held, lanes))
        writer.write(fiber, Fiber, "cluster_phase", _parity(writer, cluster))
        _arrive(writer, cluster, writer.call("i32", "llvm.ctpop.i32", fresh))
        _complete(writer, context, cluster)
        writer.give()

    parameters = declared("ptr context, ptr fiber, i32 lanes, i32 site")
    return module.function("cluster.arrive", "void", parameters, build)


def waiter(module: Module) -> str:
    """`wait(context, fiber, lanes, instruction, site)`: until all have arrived."""

    def build(writer: Writer, context: Value, fiber: Value, lanes: Value, instruction: Value,
              site: Value) -> None:  # fmt: skip
        cluster = writer.read(context, Context, "cluster")
        held = writer.read(fiber, Fiber, "cluster_lanes")
        absent = writer.both(lanes, writer.invert(held))
        _report_lanes(writer, context, absent, site, UNARRIVED)
        never = writer.compare("ne", absent, 0)
        now = _parity(writer, cluster)
        arrived_at = writer.select(never, now, writer.read(fiber, Fiber, "cluster_phase"))
        parity = writer.resize(arrived_at, "i64")
        pending = is_pending(writer, writer.read(cluster, Cluster, "phase"), parity)
        with writer.when(pending):
            place = writer.field(cluster, Cluster, "phase")
            writer.write(fiber, Fiber, "phase", place)
            writer.write(fiber, Fiber, "parity", parity)
            writer.write(fiber, Fiber, "held_at", writer.add(instruction, 1))
            writer.call("void", give_way(module), context)
            writer.write(fiber, Fiber, "held_at", 0)
            writer.store(i64(0), writer.field(fiber, Fiber, "phase"))
        held = writer.read(fiber, Fiber, "cluster_lanes")
        writer.write(fiber, Fiber, "cluster_lanes", writer.both(held, writer.invert(lanes)))
        writer.give()

    parameters = declared("ptr context, ptr fiber, i32 lanes, i32 instruction, i32 site")
    return module.function("cluster.wait", "void", parameters, build)


def leaver(module: Module) -> str:
    """`leave(context, fiber)`: a warp ends, and is not waited for any more."""

    def build(writer: Writer, context: Value, fiber: Value) -> None:
        cluster = writer.read(context, Context, "cluster")
        same = writer.compare(
            "eq", writer.read(fiber, Fiber, "cluster_phase"), _parity(writer, cluster)
        )
        held = writer.call("i32", "llvm.ctpop.i32", writer.read(fiber, Fiber, "cluster_lanes"))
        _arrive(writer, cluster, writer.select(same, writer.sub(i32(0), held), i32(0)))
        warps = writer.sub(writer.read(cluster, Cluster, "warps"), 1)
        writer.write(cluster, Cluster, "warps", warps)
        _complete(writer, context, cluster)
        live = writer.sub(writer.read(context, Context, "live"), 1)
        writer.write(context, Context, "live", live)
        last = writer.compare("eq", live, 0)
        touched = writer.compare("ne", writer.read(context, Context, "foreign_to"), 0)
        with writer.when(writer.both(last, touched)):
            # Nothing has ordered what another block did here, so it could have come later.
            site = writer.read(context, Context, "foreign_site")
            report_ended(writer, home_access(writer, context, context, i64(0), site), context)
        writer.give()

    return module.function("cluster.leave", "void", declared("ptr context, ptr fiber"), build)


def _parity(writer: Writer, cluster: Value) -> Value:
    word = writer.read(cluster, Cluster, "phase")
    return writer.resize(writer.both(writer.shift_right(word, PARITY_BIT), 1), "i32")


def _arrive(writer: Writer, cluster: Value, lanes: Value) -> None:
    arrived = writer.add(writer.read(cluster, Cluster, "arrived"), lanes)
    writer.write(cluster, Cluster, "arrived", arrived)


def _complete(writer: Writer, context: Value, cluster: Value) -> None:
    """Begin the next phase if all threads have arrived."""
    arrived, warps = (writer.read(cluster, Cluster, name) for name in ("arrived", "warps"))
    all_here = writer.compare("uge", arrived, writer.mul(warps, LANES))
    with writer.when(writer.both(all_here, writer.compare("ne", arrived, 0))):
        word = writer.read(cluster, Cluster, "phase")
        turned = writer.binary("xor", word, i64(1 << PARITY_BIT))
        writer.write(cluster, Cluster, "phase", turned)
        writer.write(cluster, Cluster, "arrived", 0)
        changes = writer.read(context, Context, "changes")
        writer.write(context, Context, "changes", writer.add(changes, 1))
        order(writer, context)


def _report_lanes(writer: Writer, context: Value, lanes: Value, site: Value, why: int) -> None:
    with writer.when(writer.compare("ne", lanes, 0)):
        window = writer.field(context, Context, "shared_window")
        base = writer.splat(writer.read(window, Site, "base"))
        access = Access(base, constant(vector("i1"), 1), window, site, context)
        report(writer, access, BARRIER, lanes, i64(why))
