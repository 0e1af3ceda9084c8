"""The two opcodes of tracking kernels: loading what is undefined, and reporting its use."""

from __future__ import annotations

from ..ptx.model import Address, Instruction, Vector
from .emit import Module, Writer
from .host_access import reader, result_types
from .layout import Context, Site
from .lowering import Lowering, take_operands
from .memory_ops import access_arguments, decode
from .registers import element_type
from .values import Value, constant, i64, struct_type, vector
from .windows import UNINITIALISED_READ, Access, each_window, host_addresses, report


def lower_undefined(lowering: Lowering, instruction: Instruction) -> None:
    """Write `undefined`, which has the form of `ld`: a bit is 1 where nobody has written it."""
    _, count, width = decode(lowering, instruction)
    target, source = take_operands(instruction, 2)
    items = target.items if isinstance(target, Vector) else (target,)
    if not isinstance(source, Address) or len(items) != count:
        raise lowering.unsupported(instruction, "its operands")
    registers, writer = lowering.registers, lowering.writer
    mask = registers.active(instruction)
    arguments = access_arguments(lowering, instruction, "global", source, mask)
    types = result_types(width, count)
    found = writer.call(struct_type(types), _finder(lowering.module, width, count), *arguments)
    guard = registers.guard(instruction)
    signed = instruction.opcode[-1].startswith("s")
    for item, value in zip(items, writer.unpack(found, types), strict=True):
        registers.write(item, value, guard, signed)


def _finder(module: Module, width: int, count: int) -> str:
    """`undefined(access…) -> bits`: zeros for lanes that are off or outside their allocation."""
    types = result_types(width, count)
    ones = int.from_bytes(b"\1" * (width // 8), "little")

    def build(writer: Writer, *parameters: Value) -> None:
        access = Access(*parameters)
        results = [writer.variable(constant(type_, 0)) for type_ in types]
        with each_window(writer, access, width * count // 8) as here:
            defined = writer.read(here.window, Site, "defined")
            with writer.when(writer.compare("ne", defined, 0)):
                read = reader(module, width, count)
                places = host_addresses(writer, here, "defined")
                good = [constant(type_, ones) for type_ in types]
                found = writer.call(struct_type(types), read, places, here.mask, *good)
                for place, value in zip(results, writer.unpack(found, types), strict=True):
                    missing = writer.mul(writer.binary("xor", value, good[0]), 0xFF)
                    known = writer.load(missing.type, place)
                    writer.store(writer.either(known, missing), place)
        writer.give(writer.pack([writer.load(t, p) for t, p in zip(types, results, strict=True)]))

    name = f"undefined.{width}x{count}"
    return module.function(name, struct_type(types), Access.parameters(), build)


def lower_use(lowering: Lowering, instruction: Instruction) -> None:
    """Write `use`: report lanes in which a shadow is not zero."""
    (shadow,) = take_operands(instruction, 1)
    registers, writer, context = lowering.registers, lowering.writer, lowering.context
    bits = registers.read(shadow, element_type(instruction.opcode[1]), lanes=True)
    lanes = writer.both(writer.compare("ne", bits, 0), registers.active(instruction))
    window = writer.field(context, Context, "shared_window")
    nowhere = constant(vector("i64"), 0)
    access = Access(nowhere, lanes, window, lowering.site(instruction), context)
    with writer.when(writer.any(lanes)):
        report(writer, access, UNINITIALISED_READ, writer.bits(lanes), i64(0))
