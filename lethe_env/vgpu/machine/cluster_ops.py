"""Instructions by which the blocks of a cluster meet and find each other's shared memory."""

from __future__ import annotations

from ..ptx.model import Instruction
from . import warp_ops
from .cluster_barriers import arriver, waiter
from .layout import RANK_BITS
from .lowering import Lowering, take_operands
from .values import Value, i32

_RANK_MASK = 0xFF
_ORDERS = {"arrive": ([], ["release"], ["relaxed"]), "wait": ([], ["acquire"])}


def lower_barrier(lowering: Lowering, instruction: Instruction) -> None:
    """Write `barrier`: of a cluster, or of a block."""
    if instruction.opcode[:2] != ("barrier", "cluster"):
        warp_ops.lower_barrier(lowering, instruction)
        return
    take_operands(instruction, 0)
    action, *modifiers = instruction.opcode[2:]
    order = [part for part in modifiers if part != "aligned"]
    if order not in _ORDERS.get(action, ()):
        raise lowering.unsupported(instruction)
    writer = lowering.writer
    if "aligned" in modifiers:
        warp_ops.report_missing_lanes(lowering, instruction)
    lanes = writer.bits(lowering.registers.active(instruction))
    site = lowering.site(instruction)
    with writer.when(writer.compare("ne", lanes, 0)):
        if action == "arrive":
            name = arriver(lowering.module)
            writer.call("void", name, lowering.context, lowering.fiber, lanes, site)
        else:
            name, place = waiter(lowering.module), i32(instruction.index)
            writer.call("void", name, lowering.context, lowering.fiber, lanes, place, site)


def lower_map(lowering: Lowering, instruction: Instruction) -> None:
    """Write `mapa`: the address of the same variable in another block of the cluster."""
    target, source, rank = take_operands(instruction, 3)
    element = _element(lowering, instruction)
    registers, writer = lowering.registers, lowering.writer
    lanes = not (registers.is_uniform(source) and registers.is_uniform(rank))
    address = registers.read(source, element, lanes)
    where = writer.both(registers.read(rank, element, lanes), _RANK_MASK)
    kept = writer.both(address, ~(_RANK_MASK << RANK_BITS))
    mapped = writer.either(kept, writer.shift_left(where, RANK_BITS))
    registers.write(target, mapped, registers.guard(instruction))


def lower_rank(lowering: Lowering, instruction: Instruction) -> None:
    """Write `getctarank`: of the block whose shared memory an address points into."""
    target, source = take_operands(instruction, 2)
    element = _element(lowering, instruction)
    registers, writer = lowering.registers, lowering.writer
    address = registers.read(source, element)
    rank: Value = writer.both(writer.shift_right(address, RANK_BITS), _RANK_MASK)
    registers.write(target, writer.resize(rank, "i32"), registers.guard(instruction))


def _element(lowering: Lowering, instruction: Instruction) -> str:
    """Integer type of the address."""
    match instruction.opcode[1:]:
        case ("shared::cluster", "u32") | ("u32",):
            return "i32"
        case ("shared::cluster", "u64") | ("u64",):
            return "i64"
    raise lowering.unsupported(instruction)
