"""One kernel as one LLVM function that runs one warp of one block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..alu import library, mma
from ..alu.accumulation import accumulation_of
from ..alu.builder import SINGLE, Definition
from ..ptx.dataflow import CARRY
from ..ptx.dataflow import sources as reads
from ..ptx.model import (
    Address,
    Dual,
    Instruction,
    Kernel,
    Operand,
    Register,
    Symbol,
    UnsupportedError,
    Vector,
)
from .emit import Module, Writer
from .layout import VARIABLES_WINDOW, WINDOW_BITS
from .registers import Registers, element_type
from .values import LANES, Value, constant, i32, struct_type, vector

WARP = "warp"
"""Symbol of the warp's function: `void warp(Context *, Fiber *)`."""


@dataclass(slots=True)
class Lowering:
    """What the writers of instructions share."""

    kernel: Kernel
    module: Module
    writer: Writer
    registers: Registers
    context: Value
    fiber: Value
    site_table: Value
    """Pointer to the thread's `Site` array."""
    depot: Value
    """Local memory of the warp: `depot_bytes` per lane."""
    depot_bytes: int
    sites: list[Instruction] = field(default_factory=list)
    """The instruction of every site, by the site's number."""
    singles: dict[Value, Value] = field(default_factory=dict)
    """What registers hold in whose lower bits a half lies, and the value of that; see `singles`."""
    required: dict[int, set[str]] = field(default_factory=dict)
    """Shared functions that arithmetic needs, by lanes."""
    polls: bool = False
    """Whether threads may wait for others in loops, so that changes of memory are counted."""
    clustered: bool = False
    """Whether the shared memory of other blocks of a cluster can be accessed."""

    def site(self, instruction: Instruction) -> Value:
        """A new site for an instruction that may have findings."""
        self.sites.append(instruction)
        return i32(len(self.sites) - 1)

    def unsupported(self, instruction: Instruction, why: str = "") -> UnsupportedError:
        """The error for an instruction that is not implemented."""
        return unsupported(instruction, why)


def unsupported(instruction: Instruction, why: str = "") -> UnsupportedError:
    """The error for an instruction that is not implemented."""
    message = f"{instruction.name}{': ' if why else ''}{why}"
    return UnsupportedError(message, instruction.name, instruction.location)


def take_operands(instruction: Instruction, count: int, more: bool = False) -> Sequence[Operand]:
    """The operands, `count` of them, or as many at least."""
    given = len(instruction.operands)
    if given < count or (given > count and not more):
        raise unsupported(instruction, f"{given} operands")
    return instruction.operands


def lower_arithmetic(lowering: Lowering, instruction: Instruction) -> None:
    """Write an instruction that maps register bits to register bits."""
    targets, sources = _split_operands(instruction)
    registers = lowering.registers
    guard = registers.guard(instruction)
    scalar = all(registers.is_uniform(Register(name)) for name in reads(instruction))
    lanes = 1 if scalar else LANES
    form = ("dual",) if len(targets) == 2 else ()
    if instruction.opcode[0] in ("min", "max") and len(sources) == 3:
        form = ("triple",)
    definition = defined(instruction, library.define, (*instruction.opcode, *form), lanes)
    if len(definition.operand_types) == len(sources) + 1:
        sources.append(Register(CARRY))
    if len(definition.result_types) == len(targets) + 1:
        targets.append(Register(CARRY))
    if len(definition.operand_types) != len(sources):
        raise unsupported(instruction, f"{len(sources)} source operands")
    arguments = [
        registers.read(source, element_type(type_), not scalar)
        for source, type_ in zip(sources, definition.operand_types, strict=True)
    ]
    results = call_definition(lowering, definition, arguments, lanes)
    signed = instruction.opcode[0] == "cvt" and instruction.opcode[-2].startswith("s")
    for target, value in zip(targets, results, strict=True):
        registers.write(target, value, guard, signed)


def lower_mma(lowering: Lowering, instruction: Instruction) -> None:
    """Write a matrix product of a whole warp."""
    registers = lowering.registers
    model = accumulation_of(lowering.kernel.target)
    definition = defined(instruction, mma.define, instruction.opcode, model)
    target, *sources = take_operands(instruction, 1, more=True)
    flat = [item for source in sources for item in _items(source)]
    arguments = [
        registers.read(item, element_type(type_), lanes=True)
        for item, type_ in zip(flat, definition.operand_types, strict=True)
    ]
    results = call_definition(lowering, definition, arguments, LANES)
    guard = registers.guard(instruction)
    for item, value in zip(_items(target), results, strict=True):
        registers.write(item, value, guard)


def lower_move(lowering: Lowering, instruction: Instruction) -> None:
    """Write `mov`, packing and unpacking vectors of registers."""
    target, source = take_operands(instruction, 2)
    registers, writer = lowering.registers, lowering.writer
    guard = registers.guard(instruction)
    element = element_type(instruction.opcode[-1])
    lanes = not registers.is_uniform(source)
    if isinstance(source, Symbol) and source.name not in registers.symbols:
        value = _parameter_offset(lowering, instruction, source.name)
    elif isinstance(source, Vector):
        value = _packed(lowering, source, element, lanes)
    else:
        value = registers.read(source, element, lanes)
    if not isinstance(target, Vector):
        registers.write(target, value, guard)
        return
    width = int(element[1:]) // len(target.items)
    for position, item in enumerate(target.items):
        moved = writer.shift_right(value, position * width) if position else value
        registers.write(item, writer.resize(moved, f"i{width}"), guard)


def _parameter_offset(lowering: Lowering, instruction: Instruction, name: str) -> Value:
    """Where a parameter lies among all, if nothing but `cvta.param` looks at the address."""
    offsets = {p.name: p.offset_bytes for p in lowering.kernel.parameters}
    target = instruction.operands[0]
    uses = (i for i in lowering.kernel.body if getattr(target, "name", None) in reads(i))
    converts = all(i.opcode[:2] == ("cvta", "param") for i in uses)
    if name not in offsets or not converts:
        raise unsupported(instruction, f"the address of {name}")
    return constant(element_type(instruction.opcode[-1]), offsets[name])


def _packed(lowering: Lowering, source: Vector, element: str, lanes: bool) -> Value:
    writer = lowering.writer
    width = int(element[1:]) // len(source.items)
    parts = [lowering.registers.read(item, f"i{width}", lanes) for item in source.items]
    whole = writer.resize(parts[0], element)
    for position, part in enumerate(parts[1:], 1):
        moved = writer.shift_left(writer.resize(part, element), position * width)
        whole = writer.either(whole, moved)
    return whole


def _split_operands(instruction: Instruction) -> tuple[list[Operand], list[Operand]]:
    first, *sources = take_operands(instruction, 1, more=True)
    targets: list[Operand] = [first]
    if isinstance(first, Dual):
        targets = [first.first, first.second]
    if not all(isinstance(target, Register) for target in targets):
        raise unsupported(instruction, "its destination")
    if any(isinstance(source, (Vector, Address)) for source in sources):
        raise unsupported(instruction, "its operands")
    return targets, list(sources)


def _items(operand: Operand) -> Sequence[Operand]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def defined(
    instruction: Instruction, define: Callable[..., Definition], *arguments: object
) -> Definition:
    """A pure instruction's function; what is unsupported is told with its place."""
    try:
        return define(*arguments)
    except UnsupportedError as error:
        raise unsupported(instruction) from error


def call_definition(
    lowering: Lowering, definition: Definition, arguments: Sequence[Value], lanes: int
) -> list[Value]:
    """Call a pure instruction's function; its text joins the module."""
    if not lowering.module.refer(definition.name):
        lowering.module.add_text(definition.name, definition.ir)
        lowering.required.setdefault(lanes, set()).update(definition.requires)
    types = [
        "float" if type_ == SINGLE else element_type(type_) for type_ in definition.result_types
    ]
    types = [vector(type_) for type_ in types] if lanes > 1 else types
    name = definition.name.lstrip("@").strip('"')
    result = lowering.writer.call(struct_type(types), f'"{name}"', *arguments)
    return lowering.writer.unpack(result, types)


def variable_layout(kernel: Kernel) -> tuple[dict[str, int], bytes, dict[str, int], int]:
    """Where module-level variables lie.

    Returns:
        Fake addresses of `.global` and `.const` variables; their bytes; offsets of `.shared`
        variables; the bytes of shared memory they take before dynamic shared memory begins.
    """
    addresses: dict[str, int] = {}
    offsets: dict[str, int] = {}
    data = bytearray()
    shared_bytes = 0
    for name, variable in kernel.variables.items():
        align = max(variable.align_bytes, 1)
        if variable.space in ("global", "const"):
            data.extend(bytes(-len(data) % align))
            addresses[name] = (VARIABLES_WINDOW << WINDOW_BITS) + len(data)
            data.extend(variable.data or bytes(variable.size_bytes))
        elif variable.space == "shared" and variable.size_bytes:
            offsets[name] = -(-shared_bytes // align) * align
            shared_bytes = offsets[name] + variable.size_bytes
    for name, variable in kernel.variables.items():
        if variable.space == "shared" and not variable.size_bytes:
            align = max(variable.align_bytes, 1)
            offsets[name] = -(-shared_bytes // align) * align
    return addresses, bytes(data), offsets, shared_bytes
