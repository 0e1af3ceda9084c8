"""`bar.red`: a barrier at which the threads of a block also count or combine a predicate.

Votes are kept for two generations of a barrier: a warp that is ahead may already vote in the next
one, but that cannot pass before all have read the result of this one.
"""

from __future__ import annotations

from ..ptx.model import Instruction
from .emit import Writer
from .layout import Barrier
from .lowering import Lowering, take_operands
from .scheduler import barrier, barrier_at
from .values import Value, constant, i32

_REDUCTIONS = (["popc", "u32"], ["and", "pred"], ["or", "pred"])


def lower_vote(lowering: Lowering, instruction: Instruction, reduction: list[str]) -> None:
    """Write `bar.red`, whose lanes are known to arrive together.

    Args:
        lowering: Where to write.
        instruction: The barrier.
        reduction: The parts of its opcode after `red`.
    """
    if reduction not in _REDUCTIONS:
        raise lowering.unsupported(instruction)
    target, number, *rest = take_operands(instruction, 3, more=True)
    if len(rest) > 2:
        raise lowering.unsupported(instruction, f"{len(rest) + 2} operands")
    registers, writer = lowering.registers, lowering.writer
    which = registers.read(number, "i32")
    threads = registers.read(rest[0], "i32") if rest[1:] else i32(lowering.kernel.threads)
    active = registers.active(instruction)
    agreed = writer.both(registers.read(rest[-1], "i1", lanes=True), active)
    result = writer.variable(i32(0))
    with writer.when(writer.any(active)):
        own = barrier_at(writer, lowering.context, which)
        slot = writer.both(writer.read(own, Barrier, "generation"), 1)
        first = writer.compare("eq", writer.read(own, Barrier, "arrived"), 0)
        votes = _count(writer, own, "votes", slot, first, agreed)
        voters = _count(writer, own, "voters", slot, first, active)
        wait = constant("i1", 1)
        name = barrier(lowering.module)
        writer.call("void", name, lowering.context, lowering.fiber, which, threads, wait)
        given, cast = writer.load("i32", votes), writer.load("i32", voters)
        writer.store(_outcome(writer, reduction[0], given, cast), result)
    value = writer.load("i32", result)
    if reduction[1] == "pred":
        value = writer.compare("ne", value, 0)
    registers.write(target, value, registers.guard(instruction))


def _count(
    writer: Writer, own: Value, field: str, slot: Value, first: Value, lanes: Value
) -> Value:
    """Add a warp's lanes to a count, which begins anew with the first warp; where it is kept."""
    place = writer.item(writer.field(own, Barrier, field), "i32", writer.resize(slot, "i64"))
    before = writer.select(first, i32(0), writer.load("i32", place))
    lanes = writer.call("i32", "llvm.ctpop.i32", writer.bits(lanes))
    writer.store(writer.add(before, lanes), place)
    return place


def _outcome(writer: Writer, reduction: str, votes: Value, voters: Value) -> Value:
    if reduction == "popc":
        return votes
    if reduction == "and":
        return writer.resize(writer.compare("eq", votes, voters), "i32")
    return votes
