"""Findings about registers that a unit still works on."""

from __future__ import annotations

from ..ptx.in_flight import RegisterFaults
from ..ptx.model import Instruction
from .lowering import Lowering
from .tensor_memory import misused
from .units import Misuse
from .values import i32


def report_registers(lowering: Lowering, instruction: Instruction, faults: RegisterFaults) -> None:
    """Write what reports an instruction that touches registers at a wrong time, if it does."""
    writer = lowering.writer
    for places, how in (
        (faults.early, Misuse.EARLY_REGISTERS),
        (faults.unfenced, Misuse.NO_REGISTER_FENCE),
    ):
        if instruction.index in places:
            with writer.when(writer.any(lowering.registers.active(instruction))):
                site = lowering.site(instruction)
                misused(writer, lowering.context, i32(0), how, site)
