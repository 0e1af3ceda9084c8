"""One thread's share of a launch: its context, its memory, and what it found."""

from __future__ import annotations

import ctypes

import numpy as np

from .async_copies import QUEUE
from .fibers import Stacks, borrow, give_back
from .launch import Launch, Share
from .layout import (
    ALONE,
    BARRIERS,
    CHECK_BARRIERS,
    CHECK_DEFINED,
    CHECK_RACES,
    COUNT_MEMORY,
    EARLY,
    FINDING_KINDS,
    MESSAGES,
    VARIABLES_WINDOW,
    WINDOW_BITS,
    Barrier,
    Context,
    Copy,
    Counters,
    Fiber,
    Message,
    Record,
    Site,
)
from .units import Units
from .values import LANES

_ALIGN_BYTES = 1024


class Worker:
    """Runs blocks of a launch in one thread; `context` is what the native code works with."""

    def __init__(self, launch: Launch, share: Share) -> None:
        self._kept: list[object] = []
        self._stacks: Stacks | None = None
        self.context = Context()
        self._set_grid(launch, share)
        self._set_memory(launch, share)
        self._set_warps(launch)

    def _keep(self, array: np.ndarray | ctypes.Structure | ctypes.Array) -> int:
        """Address of an array that lives as long as the worker."""
        self._kept.append(array)
        return array.ctypes.data if isinstance(array, np.ndarray) else ctypes.addressof(array)

    def _set_grid(self, launch: Launch, share: Share) -> None:
        context, options = self.context, launch.options
        context.grid_x, context.grid_y, context.grid_z = launch.grid
        context.parameters = self._keep(np.frombuffer(launch.parameters, np.uint8))
        context.blocks = launch.blocks
        context.order = self._keep(share.order)
        context.order_count = len(share.order)
        context.next_block = self._keep(share.next_block)
        context.options = (
            CHECK_RACES * options.races
            | CHECK_DEFINED * options.definedness
            | CHECK_BARRIERS * options.barriers
            | COUNT_MEMORY * options.count_memory
            | EARLY * options.early
            | ALONE * (len(launch.shares) == 1)
        )

    def _set_memory(self, launch: Launch, share: Share) -> None:
        context = self.context
        context.table = self._keep(launch.table)
        context.table_size = len(launch.table)
        context.shadows = self._keep(share.shadows)
        context.sectors = self._keep(share.sectors)
        context.mark_base = launch.mark_base
        context.released = self._keep(launch.released)
        context.granule_bits = launch.program.granule_bits["global"]
        context.shared_granule_bits = launch.program.granule_bits["shared"]
        variables = np.frombuffer(launch.variables or b"\0", np.uint8).copy()
        context.variables.base = VARIABLES_WINDOW << WINDOW_BITS
        context.variables.size = len(launch.variables)
        context.variables.host = self._keep(variables)
        shared = np.zeros(launch.shared_bytes + 2 * _ALIGN_BYTES, np.uint8)
        window = context.shared_window
        window.size = launch.shared_bytes
        window.host = -(-self._keep(shared) // _ALIGN_BYTES) * _ALIGN_BYTES
        if launch.options.definedness:
            window.defined = self._keep(np.zeros(launch.shared_bytes + 64, np.uint8))
        if launch.options.barriers:
            cells = (launch.shared_bytes >> context.shared_granule_bits) + LANES
            window.shadow = self._keep(np.zeros(cells, np.uint64))

    def _set_warps(self, launch: Launch) -> None:
        context, program = self.context, launch.program
        sites = len(program.sites)
        context.warps = program.warps
        context.sites = self._keep((Site * max(sites, 1))())
        self.records = (Record * (len(FINDING_KINDS) * sites + 1))()
        context.records = self._keep(self.records)
        fibers = (Fiber * program.warps)()
        context.fibers = self._keep(fibers)
        if program.uses_units:
            context.units = self._keep(Units())
        if program.copies:
            for fiber in fibers:
                fiber.copies = self._keep((Copy * QUEUE)())
        context.barriers = self._keep((Barrier * BARRIERS)())
        self.executions = np.zeros(len(program.kernel.body) + 1, np.uint64)
        context.executions = self._keep(self.executions)
        context.messages = self._keep((Message * MESSAGES)()) if program.calls else None
        self.counters = Counters()
        context.counters = self._keep(self.counters)
        if program.uses_fibers:
            self._stacks = borrow(program.warps)
            context.stack_tops = self._keep(np.array(self._stacks.tops, np.uint64))

    def close(self) -> None:
        """Give back what the next launch can use."""
        if self._stacks is not None:
            give_back(self._stacks)
            self._stacks = None
