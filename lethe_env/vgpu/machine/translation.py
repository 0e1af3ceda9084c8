"""A parsed kernel as an LLVM module, and what a launch must know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..alu import library
from ..ptx.clusters import uses_clusters
from ..ptx.flow import Flow, analyse
from ..ptx.halves import without_dead_halves
from ..ptx.in_flight import register_faults
from ..ptx.model import Instruction, Kernel, UnsupportedError
from ..ptx.polling import Polling, polling
from . import async_stores, calls, cluster_ops, dispatch, memory_ops, undefined, warp_ops
from .async_copies import lower_async
from .atomics import lower_atomic
from .blocks import write_blocks
from .clusters import write_clusters
from .cohort import watch, write_cohort
from .emit import Module, Writer
from .generic import lower_address_conversion, lower_space_test
from .launch_control import lower_launch_control
from .layout import RANK_BITS, Context
from .lowering import (
    WARP,
    Lowering,
    lower_arithmetic,
    lower_mma,
    unsupported,
    variable_layout,
)
from .matrix_ops import lower_load_matrix
from .matrix_stores import lower_store_matrix
from .phases import lower_phase_barrier
from .register_reports import report_registers
from .registers import Registers
from .scheduler import UnitCalls, write_entry
from .singles import lower_copy, lower_sum
from .tensor_maps import lower_tensor_map
from .tensor_ops import lower_tensor
from .units import uses_units
from .values import LANES, Value
from .warpgroups import lower_warpgroup

_WAITING = frozenset(("bar", "barrier"))

_LOWER: Mapping[str, Callable[[Lowering, Instruction], None]] = {
    "activemask": warp_ops.lower_active_mask,
    "add": lower_sum,
    "atom": lower_atomic,
    "bar": warp_ops.lower_barrier,
    "barrier": cluster_ops.lower_barrier,
    "brkpt": warp_ops.lower_trap,
    "call": calls.lower_call,
    "clusterlaunchcontrol": lower_launch_control,
    "cp": lower_async,
    "createpolicy": memory_ops.lower_policy,
    "cvt": lower_copy,
    "cvta": lower_address_conversion,
    "elect": warp_ops.lower_elect,
    "fence": memory_ops.lower_fence,
    "fma": lower_sum,
    "getctarank": cluster_ops.lower_rank,
    "griddepcontrol": memory_ops.lower_nothing,  # a launch begins when those before have ended
    "isspacep": lower_space_test,
    "ld": memory_ops.lower_load,
    "ldmatrix": lower_load_matrix,
    "mapa": cluster_ops.lower_map,
    "max": lower_sum,
    "mbarrier": lower_phase_barrier,
    "match": warp_ops.lower_match,
    "membar": memory_ops.lower_fence,
    "min": lower_sum,
    "mma": lower_mma,
    "mov": lower_copy,
    "mul": lower_sum,
    "nanosleep": memory_ops.lower_nothing,
    "prefetch": memory_ops.lower_nothing,
    "prefetchu": memory_ops.lower_nothing,
    "red": async_stores.lower_reduction,
    "redux": warp_ops.lower_redux,
    "setmaxnreg": memory_ops.lower_nothing,
    "shfl": warp_ops.lower_shuffle,
    "st": async_stores.lower_store,
    "stmatrix": lower_store_matrix,
    "sub": lower_sum,
    "tcgen05": lower_tensor,
    "tensormap": lower_tensor_map,
    "trap": warp_ops.lower_trap,
    "undefined": undefined.lower_undefined,
    "use": undefined.lower_use,
    "vote": warp_ops.lower_vote,
    "wgmma": lower_warpgroup,
}
"""Opcodes that are not plain arithmetic, or may be arithmetic of halves."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A kernel's module, with what a launch must know of it."""

    module: Module
    sites: tuple[Instruction, ...]
    """The instruction of each site."""


def translate_kernel(kernel: Kernel, known: Mapping[str, str] | None = None) -> Translation:
    """Lower a kernel.

    Args:
        kernel: the kernel.
        known: declarations, by name, of functions that another object defines.

    Raises:
        UnsupportedError: something in it is not implemented.
    """
    if kernel.threads <= 0 or kernel.threads % LANES:
        raise UnsupportedError(f"blocks of {kernel.threads} threads, which is no number of warps")
    kernel = without_dead_halves(kernel)
    flow = analyse(kernel)
    waits = polling(kernel, flow)
    module = Module(known)
    sites: list[Instruction] = []
    module.function(
        WARP,
        "void",
        [("ptr", "context"), ("ptr", "fiber")],
        lambda writer, context, fiber: _write_warp(
            writer, kernel, flow, waits, context, fiber, sites
        ),
    )
    units = None
    if uses_units(kernel):
        units = UnitCalls(dispatch.BEGIN, dispatch.ADVANCE, dispatch.END)
        for name in (units.begin, units.advance, units.end):
            module.refer(name)
    if uses_clusters(kernel):
        write_clusters(module, units)
    elif waits.loops:
        write_cohort(module, units)
    else:
        write_entry(module, uses_fibers(kernel), units)
    return Translation(module, tuple(sites))


def uses_fibers(kernel: Kernel) -> bool:
    """Whether warps of a block wait for each other."""
    waits = any(instruction.opcode[0] in _WAITING for instruction in kernel.body)
    together = uses_units(kernel) or uses_clusters(kernel)
    return together or (waits and kernel.threads > LANES)


def _write_warp(
    writer: Writer,
    kernel: Kernel,
    flow: Flow,
    waits: Polling,
    context: Value,
    fiber: Value,
    sites: list[Instruction],
) -> None:
    registers = Registers(writer, kernel, flow, context, fiber)
    addresses, _, offsets, _ = variable_layout(kernel)
    registers.symbols |= addresses | offsets
    clustered = uses_clusters(kernel)
    if clustered:
        registers.shared_symbols = frozenset(offsets)
        rank = writer.read(context, Context, "rank")
        registers.shared_base = writer.shift_left(rank, RANK_BITS)
    site_table = writer.read(context, Context, "sites")
    depot, depot_bytes = _local_memory(writer, kernel, registers)
    lowering = Lowering(
        kernel, writer.module, writer, registers, context, fiber, site_table, depot, depot_bytes,
        sites, polls=bool(waits.loops), clustered=clustered,
    )  # fmt: skip

    faults = register_faults(kernel, flow)

    def lower(instruction: Instruction) -> None:
        report_registers(lowering, instruction, faults)
        write = _LOWER.get(instruction.opcode[0], lower_arithmetic)
        try:
            write(lowering, instruction)
        except UnsupportedError as error:
            if error.location is not None or instruction.location is None:
                raise
            raise unsupported(instruction, str(error)) from error

    def enter(number: int) -> None:
        executions = writer.read(context, Context, "executions")
        place = writer.item(executions, "i64", number)
        writer.store(writer.add(writer.load("i64", place), 1), place)
        if number in waits.loops:
            watch(lowering, waits.loops[number])

    write_blocks(writer, kernel, flow, registers, lower, enter)
    for lanes, names in lowering.required.items():
        writer.module.add_text(f"prelude.{lanes}", library.prelude(names, lanes))


def _local_memory(writer: Writer, kernel: Kernel, registers: Registers) -> tuple[Value, int]:
    depot_bytes = 0
    for name, variable in kernel.variables.items():
        if variable.space in ("local", "param"):
            align = max(variable.align_bytes, 1)
            registers.symbols[name] = depot_bytes = -(-depot_bytes // align) * align
            depot_bytes += variable.size_bytes
    depot_bytes = -(-depot_bytes // 16) * 16
    if not depot_bytes:
        return Value("ptr", "null"), 0
    return writer.slot(f"[{LANES * depot_bytes} x i8]", 64), depot_bytes
