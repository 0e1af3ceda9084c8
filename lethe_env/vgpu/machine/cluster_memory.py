"""Shared memory of the blocks of a cluster: whose an address is, and what orders accesses to it.

An address of shared memory holds the rank of its block above the byte. Within a block, order goes
by its epochs (see `shadow`). Between blocks only what they do together counts: a barrier of the
cluster, and a phase of an `mbarrier` at which another block has arrived. Each begins an epoch in
every block of the cluster. What another block accesses bears a foreign mark until then: one that
is recent whatever the block's own epoch is, so every access of the block itself finds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .emit import Module, Writer
from .layout import RANK_BITS, Context, Fiber, Site
from .sectors import CELL_BYTES, LOW_MARK
from .shadow import ATOMIC, UNIT_WARP, WARP_BITS, Touch
from .values import LANES, Value, constant, constants, declared, i32, i64, vector
from .windows import BARRIER, OUT_OF_BOUNDS, Access, report

FOREIGN = 1 << 30
"""In a mark: it is another block's. Below follow its rank, its epoch, and its warp plus one."""
FOREIGN_RANK_BIT = 26
SEVERAL = 2 * FOREIGN - 1
"""The mark of readers that nothing orders, of two blocks at least."""
_EPOCH_BITS = FOREIGN_RANK_BIT - WARP_BITS
HOME_BIT = 32
"""In what a finding tells of a mark of the block whose memory it is: its rank plus one."""
ENDED_BIT = 40
"""In what a finding tells: that block may have ended; its rank is below."""
_WARP = (1 << WARP_BITS) - 1
_SWEPT = 16
"""Words of marks that are looked at together."""


def home_of(writer: Writer, context: Value, address: Value) -> Value:
    """The context of the block whose shared memory an address points into, `ptr`.

    Where the cluster has no such block it is the own one, outside whose memory the address lies.
    """
    rank = writer.shift_right(address, RANK_BITS)
    size = writer.resize(writer.read(context, Context, "cluster_size"), "i64")
    own = writer.resize(writer.read(context, Context, "rank"), "i64")
    return peer(writer, context, writer.select(writer.compare("ult", rank, size), rank, own))


def peer(writer: Writer, context: Value, rank: Value) -> Value:
    """The context of a block of the cluster, by its rank, `i64`."""
    return writer.load("ptr", writer.item(writer.read(context, Context, "peers"), "ptr", rank))


def mate_of(writer: Writer, context: Value) -> tuple[Value, Value]:
    """Whether a block has another with which it makes a pair, `i1`, and the context of that."""
    rank, size = (writer.read(context, Context, name) for name in ("rank", "cluster_size"))
    other = writer.binary("xor", rank, i32(1))
    exists = writer.compare("ult", other, size)
    index = writer.resize(writer.select(exists, other, rank), "i64")
    return exists, peer(writer, context, index)


def offset_in(writer: Writer, home: Value, address: Value) -> Value:
    """Where an address lies in a block's shared memory, `i64`; beyond it if it is elsewhere."""
    window = writer.field(home, Context, "shared_window")
    return writer.sub(address, writer.read(window, Site, "base"))


def is_foreign(writer: Writer, context: Value, home: Value) -> Value:
    """Whether memory is another block's, `i1`."""
    return writer.compare("ne", context, home)


def home_access(writer: Writer, context: Value, home: Value, offset: Value, site: Value) -> Access:
    """One lane's access to a block's shared memory."""
    window = writer.field(home, Context, "shared_window")
    address = writer.add(offset, writer.read(window, Site, "base"))
    lane = constants("i1", [1] + [0] * (LANES - 1))
    return Access(writer.splat(address), lane, window, site, context)


def rank_bit(writer: Writer, rank: Value) -> Value:
    """A rank as a set of blocks, `i32`; ranks that no cluster has are all the last."""
    last = writer.call("i32", "llvm.umin.i32", rank, i32(31))
    return writer.binary("shl", i32(1), last)


def check_blocks(writer: Writer, context: Value, blocks: Value, offset: Value, site: Value) -> None:
    """Report a set of blocks, `i32`, of which the cluster does not have all."""
    size = writer.read(context, Context, "cluster_size")
    beyond = writer.binary("lshr", blocks, writer.call("i32", "llvm.umin.i32", size, i32(31)))
    with writer.when(writer.compare("ne", beyond, 0)):
        access = home_access(writer, context, context, offset, site)
        report(writer, access, OUT_OF_BOUNDS, i32(1), i64(0))


@contextmanager
def each_home(writer: Writer, context: Value, blocks: Value) -> Iterator[tuple[Value, Value]]:
    """Code for each block of a set that the cluster has; gives its rank, `i32`, and context."""
    with writer.repeat(writer.read(context, Context, "cluster_size")) as rank:
        chosen = writer.both(writer.binary("lshr", blocks, rank), 1)
        with writer.when(writer.compare("ne", chosen, 0)):
            yield rank, peer(writer, context, writer.resize(rank, "i64"))


def touch(
    writer: Writer,
    context: Value,
    home: Value,
    offset: Value,
    size_bytes: Value,
    how: Touch,
    site: Value,
    by_unit: bool = False,
) -> None:
    """Check and mark an access of this block to another's shared memory, inside its bounds."""
    name = _toucher(writer.module)
    flags = constant("i1", int(by_unit))
    writer.call("void", name, context, home, offset, size_bytes, i32(how), flags, site)


def _toucher(module: Module) -> str:
    """`touch(context, home, offset, size, how, unit, site)`."""

    def build(writer: Writer, context: Value, home: Value, offset: Value, size: Value,
              how: Value, unit: Value, site: Value) -> None:  # fmt: skip
        access = home_access(writer, context, home, offset, site)
        shadow = writer.read(access.window, Site, "shadow")
        with writer.when(writer.compare("ne", shadow, 0)):
            ended = writer.compare("eq", writer.read(home, Context, "live"), 0)
            with writer.when(ended):
                report_ended(writer, access, home)
            bits = writer.resize(writer.read(context, Context, "shared_granule_bits"), "i64")
            first = writer.binary("lshr", offset, bits)
            last = writer.binary("lshr", writer.add(offset, writer.sub(size, 1)), bits)
            count = writer.add(writer.sub(last, first), 1)
            with writer.repeat(count) as step:
                cell = writer.mul(writer.add(first, step), CELL_BYTES)
                place = writer.cast("inttoptr", writer.add(shadow, cell), "ptr")
                _visit(writer, context, home, place, how, unit, access)
            _widen(writer, context, home, first, writer.add(last, 1), site)
        writer.give()

    parameters = declared("ptr context, ptr home, i64 offset, i64 size, i32 how, i1 unit, i32 site")
    return module.function("cluster.touch", "void", parameters, build)


def report_ended(writer: Writer, access: Access, home: Value) -> None:
    """Report an access to the memory of a block that may have ended."""
    rank = writer.resize(writer.read(home, Context, "rank"), "i64")
    report(writer, access, BARRIER, i32(1), writer.either(rank, 1 << ENDED_BIT))


def _visit(writer: Writer, context: Value, home: Value, place: Value, how: Value, unit: Value,
           access: Access) -> None:  # fmt: skip
    """One cell: its writer, then its reader."""
    reader_place = writer.at(place, 4)
    wrote, looked = writer.load("i32", place, 4), writer.load("i32", reader_place, 4)
    ordered_read = writer.compare("eq", how, int(Touch.ATOMIC_READ))
    reads = writer.either(writer.compare("eq", how, int(Touch.READ)), ordered_read)
    atomic = writer.compare("ugt", how, int(Touch.WRITE))
    both_atomic = writer.both(writer.compare("slt", wrote, 0), atomic)
    by_write = _conflicts(writer, context, home, wrote, unit)
    by_write = writer.both(by_write, writer.invert(both_atomic))
    shared = _conflicts(writer, context, home, looked, unit)
    by_read = writer.both(shared, writer.invert(reads))
    with writer.when(writer.either(by_write, by_read)):
        mark = writer.both(writer.select(by_write, wrote, looked), LOW_MARK)
        told = writer.resize(mark, "i64")
        rank = writer.resize(writer.read(home, Context, "rank"), "i64")
        own = writer.shift_left(writer.add(rank, 1), HOME_BIT)
        local = writer.compare("eq", writer.both(mark, FOREIGN), 0)
        told = writer.either(told, writer.select(local, own, i64(0)))
        report(writer, access, BARRIER, i32(1), told)
    own = _mark(writer, context)
    epoch = writer.shift_left(writer.read(home, Context, "epoch"), WARP_BITS)
    written = writer.select(unit, writer.either(epoch, UNIT_WARP), own)
    written = writer.select(atomic, writer.either(own, ATOMIC), written)
    writer.store(writer.select(reads, wrote, written), place, 4)
    read = writer.select(shared, i32(SEVERAL), own)
    writer.store(writer.select(reads, read, looked), reader_place, 4)


def _mark(writer: Writer, context: Value) -> Value:
    """Of the current warp in another block's memory."""
    fiber = writer.read(context, Context, "current")
    warp = writer.add(writer.read(fiber, Fiber, "warp"), 1)
    epoch = writer.both(writer.read(context, Context, "epoch"), (1 << _EPOCH_BITS) - 1)
    rank = writer.shift_left(writer.read(context, Context, "rank"), FOREIGN_RANK_BIT)
    own = writer.either(writer.shift_left(epoch, WARP_BITS), warp)
    return writer.either(writer.either(own, rank), FOREIGN)


def _conflicts(writer: Writer, context: Value, home: Value, mark: Value, unit: Value) -> Value:
    """Whether nothing orders what left a mark before the current warp, `i1`."""
    own, mark = _mark(writer, context), writer.both(mark, LOW_MARK)
    foreign = writer.compare("ne", writer.both(mark, FOREIGN), 0)
    differs = writer.binary("xor", mark, own)
    other_block = writer.compare("ne", writer.shift_right(differs, FOREIGN_RANK_BIT), 0)
    epochs_differ = writer.compare("ne", writer.shift_right(differs, WARP_BITS), 0)
    other_warp = writer.compare("ne", writer.both(differs, _WARP), 0)
    same_epoch = writer.both(writer.invert(epochs_differ), other_warp)
    by_foreign = writer.either(other_block, same_epoch)
    since = writer.read(home, Context, "ordered_epoch")
    recent = writer.compare("uge", writer.shift_right(mark, WARP_BITS), since)
    from_unit = writer.compare("eq", writer.both(mark, _WARP), UNIT_WARP)
    by_home = writer.both(recent, writer.invert(writer.both(from_unit, unit)))
    return writer.select(foreign, by_foreign, by_home)


def _widen(writer: Writer, context: Value, home: Value, first: Value, end: Value,
           site: Value) -> None:  # fmt: skip
    """Note between which cells of a block foreign marks lie, and who left the last."""
    low, high = (writer.read(home, Context, name) for name in ("foreign_from", "foreign_to"))
    none = writer.compare("eq", high, 0)
    least = writer.call("i64", "llvm.umin.i64", low, first)
    writer.write(home, Context, "foreign_from", writer.select(none, first, least))
    writer.write(home, Context, "foreign_to", writer.call("i64", "llvm.umax.i64", high, end))
    writer.write(home, Context, "foreign_site", site)
    writer.write(home, Context, "foreign_rank", writer.read(context, Context, "rank"))


def forget(writer: Writer, home: Value) -> None:
    """What other blocks did to a block's memory is ordered: clear their marks."""
    with writer.when(writer.compare("ne", writer.read(home, Context, "foreign_to"), 0)):
        writer.call("void", _sweeper(writer.module), home)


def _sweeper(module: Module) -> str:
    """`sweep(home)`."""

    def build(writer: Writer, home: Value) -> None:
        window = writer.field(home, Context, "shared_window")
        first, end = (writer.read(home, Context, name) for name in ("foreign_from", "foreign_to"))
        words = writer.mul(writer.sub(end, first), CELL_BYTES // 4)
        start = writer.add(writer.read(window, Site, "shadow"), writer.mul(first, CELL_BYTES))
        begin = writer.cast("inttoptr", start, "ptr")
        type_ = vector("i32", _SWEPT)
        with writer.pieces(words, _SWEPT, "i8") as (position, mask):
            place = writer.item(begin, "i32", position)
            old = writer.masked_load(place, mask, constant(type_, 0), 4)
            foreign = writer.compare("ne", writer.both(old, FOREIGN), 0)
            gone = writer.both(foreign, mask)
            writer.masked_store(constant(type_, 0), place, gone, 4)
        for name in ("foreign_from", "foreign_to"):
            writer.write(home, Context, name, 0)
        writer.give()

    return module.function("cluster.sweep", "void", declared("ptr home"), build)


def order(writer: Writer, context: Value) -> None:
    """Order all that the cluster's blocks did before what they do from here on."""
    writer.call("void", _orderer(writer.module), context)


def _orderer(module: Module) -> str:
    """`order(context)`."""

    def build(writer: Writer, context: Value) -> None:
        with writer.repeat(writer.read(context, Context, "cluster_size")) as rank:
            home = peer(writer, context, writer.resize(rank, "i64"))
            begin_order(writer, home)
        writer.give()

    return module.function("cluster.order", "void", declared("ptr context"), build)


def begin_order(writer: Writer, home: Value) -> None:
    """Begin an epoch in a block that orders it behind all others."""
    epoch = writer.add(writer.read(home, Context, "epoch"), 1)
    writer.write(home, Context, "epoch", epoch)
    writer.write(home, Context, "ordered_epoch", epoch)
    forget(writer, home)
