"""`cp.async.bulk`: copies of tiles that a unit makes, and the groups that are waited for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ..ptx.model import Address, Instruction, Vector
from .cluster_memory import check_blocks, rank_bit
from .dispatch import push, submit
from .groups import close_group, wait_for_groups
from .layout import MOST_RANKS, RANK_BITS, Fiber
from .leading_lane import address_at, at_lane, one_lane
from .lowering import Lowering, take_operands
from .refusals import refuse
from .tile_copies import claimer
from .tile_reductions import OPERATIONS
from .units import Kind, Operation
from .values import Value

PAIRED = 2
"""Flag of a load whose barrier lies in the pair of the block that it goes to: in the first of the
two, or with the lowest bit set in the second.
"""
_HINTS = frozenset(("tile", "L2::cache_hint"))
_MULTICAST, _PAIR = "multicast::cluster", "cta_group::2"
_OPTIONS = (_MULTICAST, "cta_group::1", _PAIR)
_PAIRS_FIRST = 0x55555555
"""The first blocks of pairs, in a set of blocks."""
_RANK = re.compile(r"([1-5])d")


def lower_bulk(lowering: Lowering, instruction: Instruction) -> None:
    """Write `cp.async.bulk`."""
    match instruction.opcode[1:]:
        case ("async", "bulk", "commit_group"):
            close_group(lowering, instruction, "bulk_group")
        case ("async", "bulk", "wait_group") | ("async", "bulk", "wait_group", "read"):
            wait_for_groups(lowering, instruction, "bulk_group")
        case ("async", "bulk", "tensor", rank, "shared::cta" | "shared::cluster", "global",
              *rest):  # fmt: skip
            others = [part for part in rest if part not in _OPTIONS]
            _check(lowering, instruction, rank, others, "mbarrier::complete_tx::bytes")
            _lower_load(lowering, instruction)
        case ("async", "bulk", "prefetch", "tensor", rank, "L2", "global", *rest):
            # What it brings nearer, no result shows.
            _check(lowering, instruction, rank, rest)
        case ("async", "bulk", "tensor", rank, "global", "shared::cta", *rest):
            _check(lowering, instruction, rank, rest, "bulk_group")
            _lower_store(lowering, instruction)
        case ("reduce", "async", "bulk", "tensor", rank, "global", "shared::cta", operation,
              *rest) if operation in OPERATIONS:  # fmt: skip
            _check(lowering, instruction, rank, rest, "bulk_group")
            _lower_store(lowering, instruction, OPERATIONS.index(operation))
        case _:
            raise lowering.unsupported(instruction)


def _check(
    lowering: Lowering, instruction: Instruction, rank: str, rest: list[str], *mechanism: str
) -> None:
    others = [part for part in rest if part not in _HINTS]
    if others != [*mechanism] or _RANK.fullmatch(rank) is None:
        raise lowering.unsupported(instruction)


def _lower_load(lowering: Lowering, instruction: Instruction) -> None:
    target, source, barrier, *more = take_operands(instruction, 3, more=True)
    if not isinstance(target, Address) or not isinstance(barrier, Address):
        raise lowering.unsupported(instruction, "its operands")
    multicast = _MULTICAST in instruction.opcode
    if len(more) != multicast + ("L2::cache_hint" in instruction.opcode):
        raise lowering.unsupported(instruction, "its operands")
    with _handed_over(lowering, instruction, Kind.LOAD, source, target) as (own, lane):
        blocks = at_lane(lowering, more[0], "i32", lane) if multicast else None
        _address_barrier(lowering, instruction, own, address_at(lowering, barrier, "i32", lane),
                         blocks)  # fmt: skip


def _address_barrier(
    lowering: Lowering, instruction: Instruction, own: Value, address: Value, blocks: Value | None
) -> None:
    """Set where a load goes to, if it is to several blocks, and where its barriers are."""
    writer, context = lowering.writer, lowering.context
    paired = _PAIR in instruction.opcode
    site = lowering.site(instruction)
    rank = writer.shift_right(address, RANK_BITS)
    offset = writer.both(address, (1 << RANK_BITS) - 1)
    writer.write(own, Operation, "barrier", offset)
    target = writer.resize(writer.read(own, Operation, "target"), "i64")
    if blocks is not None:
        blocks = writer.both(blocks, (1 << MOST_RANKS) - 1)
        writer.write(own, Operation, "blocks", blocks)
        check_blocks(writer, context, blocks, target, site)
    where = writer.read(own, Operation, "blocks")
    homes = where
    parity = writer.both(rank, 1)
    if paired:
        pairs = writer.either(where, writer.shift_right(where, 1))
        homes = writer.binary("shl", writer.both(pairs, _PAIRS_FIRST), parity)
        writer.write(own, Operation, "flags", writer.either(parity, PAIRED))
    writer.write(own, Operation, "homes", homes)
    if blocks is None:
        elsewhere = writer.compare("ne", homes, rank_bit(writer, rank))
        with writer.when(elsewhere):
            refuse(writer, context, "elsewhere")


def _lower_store(
    lowering: Lowering, instruction: Instruction, reduction: int | None = None
) -> None:
    target, source, *_ = take_operands(instruction, 2, more=True)
    if not isinstance(source, Address):
        raise lowering.unsupported(instruction, "its operands")
    kind = Kind.STORE if reduction is None else Kind.REDUCE
    with _handed_over(lowering, instruction, kind, target, source) as (own, _):
        lowering.writer.write(own, Operation, "sources", reduction or 0)


@contextmanager
def _handed_over(
    lowering: Lowering, instruction: Instruction, kind: Kind, tensor: object, place: Address
) -> Iterator[tuple[Value, Value]]:
    """Queue a copy of a tile; gives the operation, to be completed, and the lane."""
    rank = int(next(part for part in instruction.opcode if _RANK.fullmatch(part))[0])
    further = tensor.further if isinstance(tensor, Address) else ()
    coordinates = further[0] if len(further) == 1 else None
    if not isinstance(tensor, Address) or not isinstance(coordinates, Vector):
        raise lowering.unsupported(instruction, "its tensor")
    if len(coordinates.items) != rank:
        raise lowering.unsupported(instruction, f"{len(coordinates.items)} coordinates")
    writer, context = lowering.writer, lowering.context
    with one_lane(lowering, instruction) as lane:
        site = lowering.site(instruction)
        own = push(writer, context, lowering.fiber, kind, site)
        writer.write(own, Operation, "left", address_at(lowering, tensor, "i64", lane))
        address = address_at(lowering, place, "i32", lane)
        offset = writer.both(address, (1 << RANK_BITS) - 1)
        blocks = rank_bit(writer, writer.shift_right(address, RANK_BITS))
        writer.write(own, Operation, "target", offset)
        writer.write(own, Operation, "blocks", blocks)
        writer.write(own, Operation, "rank", rank)
        writer.write(own, Operation, "flags", 0)
        check_blocks(writer, context, blocks, writer.resize(offset, "i64"), site)
        group = writer.read(lowering.fiber, Fiber, "bulk_group")
        writer.write(own, Operation, "group", group)
        start = writer.field(own, Operation, "coordinates")
        for index, item in enumerate(coordinates.items):
            value = at_lane(lowering, item, "i32", lane)
            writer.store(value, writer.item(start, "i32", index), 4)
        yield own, lane
        writer.call("void", claimer(lowering.module), context, own)
        submit(writer, context)
