"""`clusterlaunchcontrol`: a cluster takes the place of another that has not begun.

What `try_cancel` leaves in shared memory is a form of our own: the indices of the first block
along x, y and z, and whether there is one. A unit answers it, as late as copies come. PTX lets a
request fail for any reason, and what is not handed out begins by itself; so where units are late,
some requests fail early.
"""

from __future__ import annotations

from ..ptx.model import Address, Instruction, Vector
from .chunks import CHUNK_BYTES, Chunks
from .cluster_memory import check_blocks, each_home, rank_bit
from .dispatch import push, submit
from .emit import Writer
from .layout import EARLY, MOST_RANKS, RANK_BITS, Context
from .leading_lane import address_at, one_lane
from .lowering import Lowering, take_operands
from .phase_actions import arriver
from .units import Kind, Operation
from .values import Value, constant, i64, vector

_EVERY_BLOCK = "multicast::cluster::all"
_FORMS = (("shared::cta",), ())
_FOUND_BIT = 32
"""In the upper half of an answer, above the index along z: there is such a cluster."""
_FAILING = 4
"""Of so many positions in the order of clusters, one is not handed out to late units."""


def lower_launch_control(lowering: Lowering, instruction: Instruction) -> None:
    """Write `clusterlaunchcontrol`."""
    match instruction.opcode[1:]:
        case ("try_cancel", "async", *space, "mbarrier::complete_tx::bytes", "b128") if (
            tuple(space) in _FORMS
        ):
            _lower_request(lowering, instruction, everywhere=False)
        case ("try_cancel", "async", *space, "mbarrier::complete_tx::bytes", last, "b128") if (
            tuple(space) in _FORMS and last == _EVERY_BLOCK
        ):
            _lower_request(lowering, instruction, everywhere=True)
        case ("query_cancel", "is_canceled", "pred", "b128"):
            _lower_query(lowering, instruction, 64 + _FOUND_BIT)
        case ("query_cancel", "get_first_ctaid", "v4", "b32", "b128"):
            _lower_query(lowering, instruction, 0, 32, 64, None)
        case ("query_cancel", part, "b32", "b128") if part in _AXES:
            _lower_query(lowering, instruction, 32 * _AXES.index(part))
        case _:
            raise lowering.unsupported(instruction)


_AXES = tuple(f"get_first_ctaid::{axis}" for axis in "xyz")


def _lower_query(lowering: Lowering, instruction: Instruction, *bits: int | None) -> None:
    """Parts of an answer, from these bits on; `None` is zero."""
    target, answer = take_operands(instruction, 2)
    registers, writer = lowering.registers, lowering.writer
    whole = registers.read(answer, "i128", lanes=True)
    items = target.items if isinstance(target, Vector) else (target,)
    if len(items) != len(bits):
        raise lowering.unsupported(instruction, f"{len(items)} registers")
    element = "i1" if "pred" in instruction.opcode else "i32"
    for item, start in zip(items, bits, strict=True):
        value = constant(vector("i32"), 0)
        if start is not None:
            value = writer.resize(writer.shift_right(whole, start), element)
        registers.write(item, value, registers.guard(instruction))


def _lower_request(lowering: Lowering, instruction: Instruction, everywhere: bool) -> None:
    place, barrier = take_operands(instruction, 2)
    if not isinstance(place, Address) or not isinstance(barrier, Address):
        raise lowering.unsupported(instruction, "its operands")
    writer, context = lowering.writer, lowering.context
    with one_lane(lowering, instruction) as lane:
        site = lowering.site(instruction)
        own = push(writer, context, lowering.fiber, Kind.CANCEL, site)
        blocks = constant("i32", 0)
        for name, operand in (("target", place), ("barrier", barrier)):
            address = address_at(lowering, operand, "i32", lane)
            offset = writer.both(address, (1 << RANK_BITS) - 1)
            writer.write(own, Operation, name, offset)
            blocks = rank_bit(writer, writer.shift_right(address, RANK_BITS))
            check_blocks(writer, context, blocks, writer.resize(offset, "i64"), site)
        if everywhere:
            size = writer.read(context, Context, "cluster_size")
            all_blocks = writer.sub(writer.binary("shl", constant("i32", 1), size), 1)
            blocks = writer.both(all_blocks, (1 << MOST_RANKS) - 1)
        for name in ("blocks", "homes"):
            writer.write(own, Operation, name, blocks)
        with each_home(writer, context, blocks) as (_, home):
            target = writer.resize(writer.read(own, Operation, "target"), "i64")
            Chunks(writer, context, site, home).claim(target, defined=False)
        submit(writer, context)


def answer(writer: Writer, context: Value, operation: Value) -> None:
    """Write what a request does."""
    site = writer.read(operation, Operation, "site")
    words = _take_cluster(writer, context)
    target, barrier = (
        writer.resize(writer.read(operation, Operation, name), "i64")
        for name in ("target", "barrier")
    )
    blocks = writer.read(operation, Operation, "blocks")
    with each_home(writer, context, blocks) as (_, home):
        Chunks(writer, context, site, home).write(target, words)
        name = arriver(writer.module)
        come = i64(-CHUNK_BYTES)
        writer.call("i64", name, context, home, barrier, i64(0), come, site)


def _take_cluster(writer: Writer, context: Value) -> Value:
    """The next cluster that nobody has begun, as an answer, `<2 x i64>`."""
    place, count = (writer.read(context, Context, n) for n in ("next_block", "order_count"))
    position = writer.load("i64", place)
    size = writer.resize(writer.read(context, Context, "cluster_size"), "i64")
    number = writer.binary("udiv", position, size)
    options = writer.read(context, Context, "options")
    early = writer.compare("ne", writer.both(options, EARLY), 0)
    willing = writer.compare("ne", writer.both(number, _FAILING - 1), _FAILING - 1)
    found = writer.both(writer.compare("ult", position, count), writer.either(early, willing))
    words = writer.variable(constant(vector("i64", 2), 0))
    with writer.when(found):
        order = writer.read(context, Context, "order")
        block = writer.load("i32", writer.item(order, "i32", position))
        x, y = (writer.read(context, Context, name) for name in ("grid_x", "grid_y"))
        rest = writer.binary("udiv", block, x)
        along = (
            writer.binary("urem", block, x),
            writer.binary("urem", rest, y),
            writer.binary("udiv", rest, y),
        )
        first, second, third = (writer.resize(index, "i64") for index in along)
        low = writer.either(first, writer.shift_left(second, 32))
        high = writer.either(third, 1 << _FOUND_BIT)
        pair = writer.insert(Value(vector("i64", 2), "poison"), low, 0)
        writer.store(writer.insert(pair, high, 1), words)
        writer.store(writer.add(position, size), place)
    return writer.load(vector("i64", 2), words)
