"""What one lane of a warp brings to an instruction that one lane executes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..ptx.model import Address, Instruction, Operand
from .lowering import Lowering
from .memory_ops import address_of
from .values import Value, constant, is_vector


@contextmanager
def one_lane(lowering: Lowering, instruction: Instruction) -> Iterator[Value]:
    """Code for the first active lane, if there is any; gives it as `i64`."""
    writer = lowering.writer
    bits = writer.bits(lowering.registers.active(instruction))
    with writer.when(writer.compare("ne", bits, 0)):
        lane = writer.call("i32", "llvm.cttz.i32", bits, constant("i1", 1))
        yield writer.resize(lane, "i64")


def at_lane(lowering: Lowering, operand: Operand, element: str, lane: Value) -> Value:
    """A lane's value of an operand."""
    value = lowering.registers.read(operand, element)
    return lowering.writer.extract(value, lane) if is_vector(value.type) else value


def address_at(lowering: Lowering, place: Address, element: str, lane: Value) -> Value:
    """A lane's address."""
    return lowering.writer.extract(address_of(lowering, place, element), lane)
