"""Work: what one call asked of the device, counted while it ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWork:
    """What launches of one kernel executed, all of them together."""

    kernel: str
    launches: int = 1
    blocks: int = 1
    warps: int = 1
    instructions: Mapping[str, int] = field(default_factory=dict)
    """Warp instructions by class: `f32`, `integer`, `memory`, `special`, `tensor`, …"""
    loaded_bytes: int = 0
    """Bytes that threads read from global memory, before any cache."""
    stored_bytes: int = 0
    """Bytes that threads wrote to global memory."""
    sectors: int = 0
    """Different 32-byte sectors of each memory instruction of a warp, added up."""
    footprint_bytes: int = 0
    """What has to move at least once: the sectors, but no more than all arguments hold."""
    bank_conflicts: int = 0
    """Extra passes through the banks of shared memory."""
    mma_operations: Mapping[str, int] = field(default_factory=dict)
    """Multiplications and additions on tensor cores by input type: `f16`, `bf16`, `tf32`, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationWork:
    """What equal calls of one torch operation moved and computed, all of them together."""

    name: str
    calls: int = 1
    bytes: int = 0
    """Bytes of the operands and the results, each once."""
    operations: Mapping[str, int] = field(default_factory=dict)
    """Multiplications and additions of products, convolutions and attention, by the type of the
    unit that does them: `f32` outside tensor cores, else as in `KernelWork`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWork:
    """Everything one call ran: kernels, and torch operations outside them."""

    kernels: tuple[KernelWork, ...] = ()
    """Launches of equal work share an entry."""
    operations: tuple[OperationWork, ...] = ()
