"""`tcgen05.mma` and `tcgen05.commit`: products that tensor cores make on their own."""

from __future__ import annotations

from ..ptx.model import Address, Instruction, Operand, Vector
from .cluster_memory import check_blocks, each_home, mate_of, rank_bit
from .dispatch import push, submit
from .emit import Writer
from .instruction_descriptors import NEGATE_LEFT, NEGATE_RIGHT, PAIR, Shape, shape_of
from .layout import MOST_RANKS, RANK_BITS
from .leading_lane import address_at, at_lane, one_lane
from .lowering import Lowering, take_operands
from .phase_actions import checker
from .refusals import refuse
from .tensor_jobs import (
    FRESH,
    LEFT_ACROSS,
    LEFT_IN_TENSOR_MEMORY,
    NEGATED,
    RIGHT_ACROSS,
    SOURCES,
    TALLEST,
    looker,
)
from .units import PAIRED_PRODUCT, Kind, Operation
from .values import Value

_LANE_MASK_WORDS = 4
"""Of each block."""


def lower_tensor_product(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tcgen05.mma`."""
    target, left, right, descriptor, *mask, keep = take_operands(instruction, 5, more=True)
    shape = shape_of(lowering.kernel, instruction)
    if shape is None or not isinstance(target, Address):
        raise lowering.unsupported(instruction, "its instruction descriptor")
    members = 1 + (PAIR in instruction.opcode)
    masked = [word for part in mask if isinstance(part, Vector) for word in part.items]
    if len(mask) > 1 or len(masked) != members * _LANE_MASK_WORDS * len(mask):
        raise lowering.unsupported(instruction, "its operands")
    fixed = _fixed_fields(lowering, instruction, shape, members, isinstance(left, Address))
    writer, context = lowering.writer, lowering.context
    with one_lane(lowering, instruction) as lane:
        fresh = writer.invert(at_lane(lowering, keep, "i1", lane))
        turned = writer.mul(writer.resize(fresh, "i32"), FRESH)
        turned = writer.either(
            turned, _negation(writer, at_lane(lowering, descriptor, "i32", lane))
        )
        _refuse_rest(lowering, masked, members, lane)
        site = lowering.site(instruction)
        own = push(writer, context, lowering.fiber, Kind.PRODUCT, site)
        fields: dict[str, Value | int] = {
            **fixed,
            "left": _left_factor(lowering, left, lane),
            "right": at_lane(lowering, right, "i64", lane),
            "target": address_at(lowering, target, "i32", lane),
            "flags": writer.either(turned, fixed["flags"]),
        }
        for name, value in fields.items():
            writer.write(own, Operation, name, value)
        writer.call("void", looker(lowering.module), context, own)
        submit(writer, context)


def _fixed_fields(
    lowering: Lowering, instruction: Instruction, shape: Shape, members: int, in_memory: bool
) -> dict[str, int]:
    """What the text of the kernel says about an `Operation`; `members` blocks make the product."""
    rows, columns = shape.rows // members, shape.columns
    if members > 1 and rows < TALLEST:
        # Then the upper half of the lanes has the right half of the columns.
        columns //= 2
        if in_memory:
            raise lowering.unsupported(instruction, "its left factor in tensor memory")
    flags = LEFT_ACROSS * shape.left_across | RIGHT_ACROSS * shape.right_across
    flags |= LEFT_IN_TENSOR_MEMORY * in_memory | PAIRED_PRODUCT * (members > 1)
    sources = SOURCES.index(shape.left) | SOURCES.index(shape.right) << 8
    return {"rows": rows, "columns": columns, "flags": flags, "sources": sources}


def _refuse_rest(lowering: Lowering, masked: list[Operand], members: int, lane: Value) -> None:
    """End the launch if lanes are left out, or the other block of a pair is missing."""
    writer, context = lowering.writer, lowering.context
    for word in masked:
        left_out = writer.compare("ne", at_lane(lowering, word, "i32", lane), 0)
        with writer.when(left_out):
            refuse(writer, context, "masked")
    if members > 1:
        exists, _ = mate_of(writer, context)
        with writer.when(writer.invert(exists)):
            refuse(writer, context, "alone")


def _left_factor(lowering: Lowering, left: Operand, lane: Value) -> Value:
    """A descriptor, or an address in tensor memory."""
    if isinstance(left, Address):
        return lowering.writer.resize(address_at(lowering, left, "i32", lane), "i64")
    return at_lane(lowering, left, "i64", lane)


def _negation(writer: Writer, descriptor: Value) -> Value:
    """The flag of a product whose sign turns, which it does not if those of both factors do."""
    turned = (
        writer.resize(writer.compare("ne", writer.both(descriptor, bit), 0), "i32")
        for bit in (NEGATE_LEFT, NEGATE_RIGHT)
    )
    return writer.mul(writer.binary("xor", *turned), NEGATED)


def lower_commit(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tcgen05.commit`: a barrier learns when what the warp has handed over is done."""
    place, *mask = take_operands(instruction, 1, more=True)
    multicast = "multicast::cluster" in instruction.opcode
    if not isinstance(place, Address) or len(mask) != multicast:
        raise lowering.unsupported(instruction, "its operands")
    writer, context = lowering.writer, lowering.context
    with one_lane(lowering, instruction) as lane:
        own = push(writer, context, lowering.fiber, Kind.ARRIVE, lowering.site(instruction))
        address = address_at(lowering, place, "i32", lane)
        offset = writer.both(address, (1 << RANK_BITS) - 1)
        homes = rank_bit(writer, writer.shift_right(address, RANK_BITS))
        if mask:
            homes = writer.both(at_lane(lowering, mask[0], "i32", lane), (1 << MOST_RANKS) - 1)
        writer.write(own, Operation, "barrier", offset)
        writer.write(own, Operation, "homes", homes)
        wide, site = writer.resize(offset, "i64"), lowering.site(instruction)
        check_blocks(writer, context, homes, wide, site)
        with each_home(writer, context, homes) as (_, home):
            writer.call("void", checker(lowering.module), context, home, wide, site)
        submit(writer, context)
