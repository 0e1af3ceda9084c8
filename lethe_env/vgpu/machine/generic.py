"""Generic addresses: one number for global, shared and local memory, told apart by their window."""

from __future__ import annotations

from collections.abc import Iterator

from ..ptx.model import Instruction
from .emit import Writer
from .layout import (
    LOCAL_WINDOW,
    PARAMETER_WINDOW,
    RANK_BITS,
    SHARED_WINDOW,
    WINDOW_BITS,
    Context,
)
from .lowering import Lowering, take_operands
from .registers import element_type
from .values import Value, is_vector

_WINDOWS = {"shared": SHARED_WINDOW, "shared::cluster": SHARED_WINDOW, "local": LOCAL_WINDOW}
_SAME = ("global", "const")
"""Spaces whose own addresses are the generic ones."""


def lower_address_conversion(lowering: Lowering, instruction: Instruction) -> None:
    """Write `cvta` and `cvta.to`, of 64 bits."""
    target, source = take_operands(instruction, 2)
    registers, writer = lowering.registers, lowering.writer
    _, *direction, space, type_ = instruction.opcode
    space = space.removesuffix("::cta")
    if (direction, space, type_) == ([], "param", "u64"):
        value = writer.add(registers.read(source, "i64"), PARAMETER_WINDOW << WINDOW_BITS)
        registers.write(target, value, registers.guard(instruction))
        return
    if direction not in ([], ["to"]) or space not in (*_SAME, *_WINDOWS) or type_ != "u64":
        raise lowering.unsupported(instruction)
    value = registers.read(source, element_type(type_))
    if space in _WINDOWS:
        base = _WINDOWS[space] << WINDOW_BITS
        value = writer.sub(value, base) if direction else writer.add(value, base)
    registers.write(target, value, registers.guard(instruction))


def lower_space_test(lowering: Lowering, instruction: Instruction) -> None:
    """Write `isspacep`."""
    target, source = take_operands(instruction, 2)
    registers, writer = lowering.registers, lowering.writer
    space = instruction.opcode[-1].removesuffix("::cta")
    if len(instruction.opcode) != 2 or space not in ("global", *_WINDOWS):
        raise lowering.unsupported(instruction)
    address = registers.read(source, "i64")
    inside = {name: _is_in(writer, address, name) for name in _WINDOWS}
    if space == "shared" and lowering.clustered:
        rank = writer.resize(writer.read(lowering.context, Context, "rank"), "i64")
        own = writer.add(rank, SHARED_WINDOW << (WINDOW_BITS - RANK_BITS))
        part = writer.shift_right(address, RANK_BITS)
        result = writer.compare("eq", part, writer.splat(own) if is_vector(part.type) else own)
    elif space == "global":
        result = writer.invert(writer.either(inside["shared"], inside["local"]))
    else:
        result = inside[space]
    registers.write(target, result, registers.guard(instruction))


def each_space(
    writer: Writer, addresses: Value, mask: Value, *spaces: str
) -> Iterator[tuple[str, Value, Value]]:
    """Code for each state space that generic addresses may point into, where any lane's does.

    Args:
        writer: Where to write.
        addresses: Generic addresses of the lanes.
        mask: Lanes that make the access.
        spaces: Which of `shared`, or `shared::cluster`, and `local` are told apart; all others
            are global.

    Yields:
        The state space, addresses within it, and the lanes that access it.
    """
    rest = mask
    for space in spaces:
        here = writer.both(_is_in(writer, addresses, space), mask)
        rest = writer.both(rest, writer.invert(here))
        with writer.when(writer.any(here)):
            yield space, writer.sub(addresses, _WINDOWS[space] << WINDOW_BITS), here
    with writer.when(writer.any(rest)):
        yield "global", addresses, rest


def _is_in(writer: Writer, addresses: Value, space: str) -> Value:
    return writer.compare("eq", writer.shift_right(addresses, WINDOW_BITS), _WINDOWS[space])
