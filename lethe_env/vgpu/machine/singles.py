"""Halves as the single-precision numbers that arithmetic on them needs.

The processor adds halves in single precision: both are converted, and their sum is converted to a
half. If that is added to another one it is converted back, and in a reduction across lanes a second
time for the lane that gets a copy. So beside the bits of a half its value is kept, and goes where
the bits go.
"""

from __future__ import annotations

from ..alu import library
from ..alu.builder import SINGLE
from ..alu.mixed import is_mixed
from ..ptx.dataflow import sources as reads
from ..ptx.model import Instruction, Operand, Register, Vector
from .lowering import Lowering, call_definition, defined, lower_arithmetic, lower_move
from .values import LANES, Value, is_vector, vector

_OPERANDS = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "min": 2, "max": 2}
_COPIES = {("cvt", "u32", "u16"), ("cvt", "u16", "u32"), ("mov", "b16"), ("mov", "b32")}
"""After these the lower 16 bits of two registers are the same."""


def lower_sum(lowering: Lowering, instruction: Instruction) -> None:
    """Write `add`, `sub`, `mul`, `fma`, `min` and `max`."""
    code = instruction.opcode
    target, *operands = instruction.operands
    registers = lowering.registers
    halves = code[-1] == "f16" and "ftz" not in code and not is_mixed(code)
    uniform = all(registers.is_uniform(Register(name)) for name in reads(instruction))
    if uniform or not halves or len(operands) != _OPERANDS[code[0]]:
        lower_arithmetic(lowering, instruction)
        return
    opcode = (*code[:-1], SINGLE, code[-1])
    definition = defined(instruction, library.define, opcode, LANES)
    arguments = [_single(lowering, operand) for operand in operands]
    bits, single = call_definition(lowering, definition, arguments, LANES)
    guard = registers.guard(instruction)
    registers.write(target, bits, guard)
    if guard is None:
        keep_single(lowering, target, single)


def lower_copy(lowering: Lowering, instruction: Instruction) -> None:
    """Write `mov` and `cvt`."""
    write = lower_move if instruction.opcode[0] == "mov" else lower_arithmetic
    write(lowering, instruction)
    if instruction.opcode in _COPIES and instruction.predicate is None:
        target, source = (_lower_half(item, instruction) for item in instruction.operands)
        known = find_single(lowering, source)
        if known is not None:
            keep_single(lowering, target, known)


def find_single(lowering: Lowering, operand: Operand) -> Value | None:
    """The value of the half in the lower bits of an operand if it is known, `<32 x float>`."""
    held = lowering.registers.held(operand)
    return lowering.singles.get(held) if held is not None else None


def keep_single(lowering: Lowering, operand: Operand, value: Value) -> None:
    """Note the value of the half that now lies in the lower bits of an operand."""
    held = lowering.registers.held(operand)
    if held is not None and is_vector(held.type):
        lowering.singles[held] = value


def _single(lowering: Lowering, operand: Operand) -> Value:
    known = find_single(lowering, operand)
    if known is not None:
        return known
    writer = lowering.writer
    bits = lowering.registers.read(operand, "i16", lanes=True)
    halves = writer.cast("bitcast", bits, vector("half"))
    value = writer.cast("fpext", halves, vector("float"))
    keep_single(lowering, operand, value)
    return value


def _lower_half(operand: Operand, instruction: Instruction) -> Operand:
    """Where the lower 16 bits of an operand are; those of a vector of bytes are in no register."""
    halves = instruction.opcode[-1] == "b32" and isinstance(operand, Vector)
    return operand.items[0] if halves and len(operand.items) == 2 else operand
