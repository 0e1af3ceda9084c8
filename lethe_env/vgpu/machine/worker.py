"""One thread's share of a launch: its context, its memory, and what it found."""

from __future__ import annotations

import ctypes
from typing import TypeVar

import numpy as np

from .async_copies import QUEUE
from .buffer import address_of, padded_zeros
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
    RANK_BITS,
    VARIABLES_WINDOW,
    WINDOW_BITS,
    Barrier,
    Cluster,
    Context,
    Copy,
    Counters,
    Fiber,
    Message,
    Record,
    Site,
)
from .sectors import CELL_BYTES
from .units import Units
from .values import LANES

_ALIGN_BYTES = 1024
_COUNT_BYTES = 8
_Kind = TypeVar("_Kind", bound=ctypes.Structure | ctypes.Array)
_MOST_KEPT_BYTES = 1 << 15
"""Of shared memory: what takes more works longer than it takes to make a worker."""


class Worker:
    """Runs blocks of a launch in one thread; `context` is what the native code works with.

    What does not depend on the launch is kept for the next one, if that is no great deal.
    """

    def __init__(self, launch: Launch, share: Share) -> None:
        self._kept: list[object] = []
        self._stacks: Stacks | None = None
        self.context = _new(Context)
        self._make_memory(launch)
        self._make_warps(launch)
        self.join(Cluster(), (ctypes.c_void_p * 1)(ctypes.addressof(self.context)), 0)
        self.begin(launch, share)

    @staticmethod
    def of(launch: Launch, share: Share) -> Worker:
        """A worker that an earlier launch has left, or a new one."""
        try:
            worker = launch.program.idle[_kind(launch)].pop()
        except IndexError:
            return Worker(launch, share)
        worker.begin(launch, share)
        return worker

    def begin(self, launch: Launch, share: Share) -> None:
        """Forget the last launch, and prepare for this one."""
        context, options, program = self.context, launch.options, launch.program
        self._launch, self._share = launch, share
        context.grid_x, context.grid_y, context.grid_z = launch.grid
        context.parameters = launch.parameters.address
        context.blocks = launch.blocks
        self.take_from(share)
        context.options = (
            CHECK_RACES * options.races
            | CHECK_DEFINED * options.definedness
            | CHECK_BARRIERS * options.barriers
            | COUNT_MEMORY * options.count_memory
            | EARLY * options.early
            | ALONE * (len(launch.shares) == 1)
        )
        windows = len(launch.table.array)
        context.table, context.table_size = launch.table.address, windows
        context.shadows = share.cells.address
        context.sectors = share.cells.address + ctypes.sizeof(ctypes.c_uint64) * windows
        context.mark_base = launch.mark_base
        context.released = launch.released.address
        if launch.variables:
            ctypes.memmove(context.variables.host, launch.variables, len(launch.variables))
        if program.uses_fibers:
            self._stacks = borrow(program.warps)
            context.stack_tops = self._stacks.tops.address

    def take_from(self, share: Share) -> None:
        """Run blocks of a share from now on."""
        self.context.order, self.context.order_count = share.order, share.blocks
        self.context.next_block = share.next_block.address

    def join(self, cluster: Cluster, peers: ctypes.Array[ctypes.c_void_p], rank: int) -> None:
        """Be one block of a cluster.

        Args:
            cluster: what its blocks share.
            peers: addresses of their contexts, by rank.
            rank: of this one.
        """
        context = self.context
        context.cluster, context.peers = self._keep(cluster), self._keep(peers)
        context.rank, context.cluster_size = rank, len(peers)
        context.shared_window.base = rank << RANK_BITS

    def close(self) -> None:
        """Give back what the next launch can use."""
        if self._stacks is not None:
            give_back(self._stacks)
            self._stacks = None
        kind, program = _kind(self._launch), self._launch.program
        if self.context.stop or program.uses_units or program.polling.loops:
            return
        if program.clustered:
            return
        if self._launch.shared_bytes > _MOST_KEPT_BYTES:
            return
        self.context.record_count = self.context.message_count = 0
        ctypes.memset(self.context.sites, 0, self._sites_bytes)
        ctypes.memset(self.context.counters, 0, ctypes.sizeof(Counters))
        self.executions.fill(0)
        del self._launch, self._share
        program.idle[kind].append(self)

    def _keep(self, structure: ctypes.Structure | ctypes.Array) -> int:
        """Address of something that lives as long as the worker."""
        self._kept.append(structure)
        return ctypes.addressof(structure)

    def _zeros(self, size_bytes: int) -> int:
        """Address of zeros that live as long as the worker, with no other data beside them."""
        array = padded_zeros(size_bytes)
        self._kept.append(array)
        return address_of(array)

    def _make_memory(self, launch: Launch) -> None:
        context = self.context
        context.granule_bits = launch.program.granule_bits["global"]
        context.shared_granule_bits = launch.program.granule_bits["shared"]
        context.variables.base = VARIABLES_WINDOW << WINDOW_BITS
        context.variables.size = len(launch.variables)
        context.variables.host = self._zeros(len(launch.variables) + 1)
        shared = self._zeros(launch.shared_bytes + 2 * _ALIGN_BYTES)
        window = context.shared_window
        window.size = launch.shared_bytes
        window.host = -(-shared // _ALIGN_BYTES) * _ALIGN_BYTES
        if launch.options.definedness:
            window.defined = self._zeros(launch.shared_bytes + 64)
        if launch.options.barriers:
            cells = (launch.shared_bytes >> context.shared_granule_bits) + LANES
            window.shadow = self._zeros(CELL_BYTES * cells)

    def _make_warps(self, launch: Launch) -> None:
        context, program = self.context, launch.program
        sites = len(program.sites)
        context.warps = program.warps
        self._sites_bytes = ctypes.sizeof(Site) * max(sites, 1)
        context.sites = self._keep(_new(Site * max(sites, 1)))
        self.records = (Record * (len(FINDING_KINDS) * sites + 1))()
        context.records = self._keep(self.records)
        fibers = _new(Fiber * program.warps)
        context.fibers = self._keep(fibers)
        if program.uses_units:
            context.units = self._keep(_new(Units))
        if program.copies:
            for fiber in fibers:
                fiber.copies = self._keep(_new(Copy * QUEUE))
        if program.has_barriers:
            context.barriers = self._keep(_new(Barrier * BARRIERS))
        blocks = len(program.kernel.body) + 1
        self.executions = padded_zeros(_COUNT_BYTES * blocks).view(np.uint64)
        context.executions = address_of(self.executions)
        context.messages = self._keep((Message * MESSAGES)()) if program.calls else None
        counters = _new(Counters)
        context.counters = self._keep(counters)
        self.events = np.frombuffer(counters, np.uint64)
        """The fields of `Counters`."""


def _new(kind: type[_Kind]) -> _Kind:
    """A structure of zeros with no other data on its cache lines."""
    return kind.from_buffer(padded_zeros(ctypes.sizeof(kind)))


def _kind(launch: Launch) -> tuple[int, bool, bool]:
    """What workers of one program must have in common to stand in for each other."""
    return launch.shared_bytes, launch.options.definedness, launch.options.barriers
