"""`cp.async.bulk`: copies of tiles that a unit makes, and the groups that are waited for."""

from __future__ import annotations

import re

from ..ptx.constants import possible_values
from ..ptx.model import Address, Instruction, Vector
from .dispatch import push, submit
from .groups import close_group, wait_for_groups
from .layout import Fiber
from .leading_lane import address_at, at_lane, one_lane
from .lowering import Lowering, take_operands
from .tile_copies import claimer
from .tile_reductions import OPERATIONS
from .units import Kind, Operation

_HINTS = frozenset(("tile", "L2::cache_hint"))
_MULTICAST = "multicast::cluster"
_ONLY_BLOCK = frozenset((1,))
"""Of the values of a mask of the cluster's blocks: clusters are refused, so there is one."""
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
            others = [part for part in rest if part != _MULTICAST]
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
    if _MULTICAST in instruction.opcode:
        masks = possible_values(lowering.kernel, more[0]) if more else frozenset()
        if masks != _ONLY_BLOCK:
            raise lowering.unsupported(instruction, "blocks of a cluster that it names")
    _hand_over(lowering, instruction, Kind.LOAD, source, target, barrier)


def _lower_store(
    lowering: Lowering, instruction: Instruction, reduction: int | None = None
) -> None:
    target, source, *_ = take_operands(instruction, 2, more=True)
    if not isinstance(source, Address):
        raise lowering.unsupported(instruction, "its operands")
    kind = Kind.STORE if reduction is None else Kind.REDUCE
    _hand_over(lowering, instruction, kind, target, source, None, reduction or 0)


def _hand_over(
    lowering: Lowering,
    instruction: Instruction,
    kind: Kind,
    tensor: object,
    place: Address,
    barrier: Address | None,
    reduction: int = 0,
) -> None:
    """Queue a copy of a tile."""
    rank = int(next(part for part in instruction.opcode if _RANK.fullmatch(part))[0])
    further = tensor.further if isinstance(tensor, Address) else ()
    coordinates = further[0] if len(further) == 1 else None
    if not isinstance(tensor, Address) or not isinstance(coordinates, Vector):
        raise lowering.unsupported(instruction, "its tensor")
    if len(coordinates.items) != rank:
        raise lowering.unsupported(instruction, f"{len(coordinates.items)} coordinates")
    writer = lowering.writer
    with one_lane(lowering, instruction) as lane:
        own = push(writer, lowering.context, lowering.fiber, kind, lowering.site(instruction))
        writer.write(own, Operation, "left", address_at(lowering, tensor, "i64", lane))
        writer.write(own, Operation, "target", address_at(lowering, place, "i32", lane))
        writer.write(own, Operation, "rank", rank)
        writer.write(own, Operation, "sources", reduction)
        group = writer.read(lowering.fiber, Fiber, "bulk_group")
        writer.write(own, Operation, "group", group)
        start = writer.field(own, Operation, "coordinates")
        for index, item in enumerate(coordinates.items):
            value = at_lane(lowering, item, "i32", lane)
            writer.store(value, writer.item(start, "i32", index), 4)
        if barrier is not None:
            value = address_at(lowering, barrier, "i32", lane)
            writer.write(own, Operation, "barrier", value)
        writer.call("void", claimer(lowering.module), lowering.context, own)
        submit(writer, lowering.context)
