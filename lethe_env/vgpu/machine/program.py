"""Programs: PTX compiled for this processor, and launches of it over a grid."""

from __future__ import annotations

import ctypes
import json
import math
import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..ptx.clusters import uses_clusters
from ..ptx.flow import analyse
from ..ptx.model import Kernel, UnsupportedError
from ..ptx.parser import parse
from ..ptx.polling import polling
from ..tracking.kernel import tracking_kernel
from . import clusters, cohort, shared_code, tensor_code
from .counts import tally
from .granules import granule_bits
from .independence import meets_only_in_memory, writes_blindly
from .launch import Argument, Launch, Memory, Options, prepared, resident_blocks
from .layout import Cluster, Context
from .lowering import variable_layout
from .native import Effort, NativeCode, compile_object
from .outcome import merge
from .plan import Plan, Plans
from .provenance import accessed_parameters
from .refusals import REFUSALS
from .report import Finding, LaunchReport
from .scheduler import ENTRY
from .speculation import run_apart, work_of_warp
from .tensor_work import tensor_type
from .translation import translate_kernel, uses_fibers
from .units import uses_units
from .used_reads import Snapshot, keep_used, snapshot
from .values import LANES
from .worker import Worker

__all__ = ["Finding", "LaunchReport", "Options", "Program", "build", "compile", "load", "translate"]

_HEADER = struct.Struct("<I")
_BARRIERS = ("bar", "barrier")
_SHORT_CODE = 1 << 18
"""Characters of LLVM IR below which better code costs less than a tenth of what Triton takes."""
_MIRROR_ALIGN_BYTES = 1024
"""Of the shadow of shared memory in tracking kernels, which all accesses share."""


def translate(ptx: str) -> bytes:
    """Compile PTX to a native object that `load` takes, in this or another process.

    Raises:
        UnsupportedError: something in the kernel is not implemented.
    """
    return _native(parse(ptx))


def _native(kernel: Kernel) -> bytes:
    known = shared_code.declarations()
    if tensor_code.serves(kernel):
        known = {**known, **tensor_code.declarations()}
    translation = translate_kernel(kernel, known)
    sites = json.dumps([instruction.index for instruction in translation.sites]).encode()
    text = translation.module.text()
    effort = Effort.SOME if len(text) < _SHORT_CODE else Effort.LITTLE
    return _HEADER.pack(len(sites)) + sites + compile_object(text, effort)


def load(ptx: str, native: bytes) -> Program:
    """A program from its PTX and what `translate` made of it."""
    return Program(parse(ptx), native)


def compile(ptx: str) -> Program:
    """Translate and load."""
    return build(parse(ptx))


def build(kernel: Kernel) -> Program:
    """A program from a parsed kernel."""
    return Program(kernel, _native(kernel))


class Program:
    """A kernel that can be launched."""

    def __init__(self, kernel: Kernel, native: bytes) -> None:
        self.kernel = kernel
        self.flow = analyse(kernel)
        self.object_bytes = native
        """What `load` takes."""
        (size,) = _HEADER.unpack_from(native)
        start = _HEADER.size + size
        self.sites = tuple(kernel.body[k] for k in json.loads(native[_HEADER.size : start]))
        """The instruction of each site of the native code."""
        _, self.variables, _, self.static_shared_bytes = variable_layout(kernel)
        self.tally = tally(kernel, self.flow)
        """What each block of the kernel counts for."""
        self.tensor_type = tensor_type(kernel)
        """See `tensor_work.tensor_type`."""
        self.accessed = accessed_parameters(kernel)
        """Where its loads and stores may go."""
        self._tracking: dict[tuple[frozenset[int], int], Program] = {}
        self.granule_bits = {space: granule_bits(kernel, space) for space in ("global", "shared")}
        """Logarithm of the bytes that a cell of the sanitizer stands for."""
        self.warps = -(-kernel.threads // LANES)
        """Warps per block."""
        self.polling = polling(kernel, self.flow)
        """Loops in which threads may wait for others."""
        self.uses_fibers = uses_fibers(kernel) or bool(self.polling.loops)
        """Whether warps need stacks of their own."""
        self.has_barriers = self.uses_fibers or any(i.opcode[0] in _BARRIERS for i in kernel.body)
        """Whether its blocks begin with barriers that nobody has reached."""
        self.clustered = uses_clusters(kernel)
        """Whether blocks run in clusters, which may be of one block."""
        self.copies = any(i.opcode[:2] == ("cp", "async") for i in kernel.body)
        """Whether warps copy to shared memory asynchronously."""
        self.calls = any(i.opcode[0] == "call" for i in kernel.body)
        """Whether lanes can leave messages."""
        self._separable = (
            not self.polling.loops
            and not self.clustered
            and self._is_watched()
            and meets_only_in_memory(kernel)
        )
        """Whether blocks may run on several threads; false once they have met."""
        self.writes_blindly = writes_blindly(kernel)
        """See `independence.writes_blindly`."""
        self.idle: dict[tuple[int, bool, bool], list[Worker]] = defaultdict(list)
        """Workers that no launch uses at the moment, by kind."""
        self.block_work = self.warps * work_of_warp(kernel, self.flow)
        """About how many instructions the warps of a block execute."""
        self._plans = Plans(self)
        shared_code.ensure_linked()
        self.uses_units = uses_units(kernel)
        """Whether it hands work to units beside the warps."""
        if tensor_code.serves(kernel):
            tensor_code.ensure_linked()
        self._code = NativeCode(native[start:])
        if self.clustered or self.polling.loops:
            prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
            name = clusters.ENTRY if self.clustered else cohort.ENTRY
            self._entry = prototype(self._code.address(name))
        else:
            prototype = ctypes.CFUNCTYPE(None, ctypes.POINTER(Context))
            self._entry = prototype(self._code.address(ENTRY))

    def run(
        self,
        grid: Sequence[int],
        arguments: Sequence[Argument],
        memory: Memory,
        options: Options | None = None,
    ) -> LaunchReport:
        """Launch the kernel.

        Args:
            grid: Blocks along x, y and z; missing ones are 1.
            arguments: One per kernel parameter from the first on; parameters beyond them are 0.
            memory: Where addresses lead.
            options: How to run; by default everything is checked.

        Raises:
            ValueError: more arguments than parameters.
        """
        options = options or Options()
        plan = self._plans.find(grid, arguments, memory.table, options)
        before = snapshot(memory.table, plan) if options.definedness else None
        report = self._launch(plan, memory.table, options)
        if before is None:
            return report
        return keep_used(
            self.kernel,
            report,
            lambda loads: self._track(frozenset(loads), grid, arguments, before, options),
        )

    def _track(
        self,
        loads: frozenset[int],
        grid: Sequence[int],
        arguments: Sequence[Argument],
        before: Snapshot,
        options: Options,
    ) -> LaunchReport:
        """Launch the kernel that follows what some loads read, on memory as it was before."""
        used_bytes = self.static_shared_bytes + options.shared_bytes
        mirror_bytes = -(-used_bytes // _MIRROR_ALIGN_BYTES) * _MIRROR_ALIGN_BYTES
        key = loads, mirror_bytes
        if key not in self._tracking:
            self._tracking[key] = build(tracking_kernel(self.kernel, loads, mirror_bytes))
        options = replace(
            options,
            shared_bytes=mirror_bytes + options.shared_bytes,
            threads=1,
            races=False,
            barriers=False,
            count_memory=False,
        )
        own, tracking = before.renewed(), self._tracking[key]
        plan = tracking._plans.find(grid, arguments, own.table, options)
        return tracking._launch(plan, own.table, options)

    def _launch(self, plan: Plan, table: np.ndarray, options: Options) -> LaunchReport:
        if plan.threads > 1 and self._separable:
            with prepared(self, plan, table, options, plan.threads) as launch:
                report = run_apart(launch, plan.cells, plan.saved)
            if report is not None:
                return report
            self._separable = False
        with prepared(self, plan, table, options) as launch:
            size = math.prod(launch.cluster) if self.clustered else 1
            together = resident_blocks(launch) // size if self.polling.across_blocks else 1
            contexts = size * max(1, together)
            workers = [Worker.of(launch, launch.shares[0]) for _ in range(contexts)]
            if self.clustered:
                self._work_in_clusters(launch, workers)
            elif self.polling.loops:
                self._work_together(workers)
            else:
                self.work(workers[0])
            report = merge(launch, workers)
        for worker in workers:
            worker.close()
        if self._separable:
            self._plans.learn(plan, report.counts["warp_instructions"], table, options)
        if report.stopped in REFUSALS:
            raise UnsupportedError(f"{REFUSALS[report.stopped]}, in {self.kernel.name}")
        return report

    def _is_watched(self) -> bool:
        """Whether all that blocks may write to are arguments, for which there are cells."""
        written = self.accessed.written
        return written is not None and all(k < len(self.kernel.parameters) for k in written)

    def _work_together(self, workers: Sequence[Worker]) -> None:
        contexts = [ctypes.addressof(worker.context) for worker in workers]
        pointers = (ctypes.c_void_p * len(contexts))(*contexts)
        self._entry(pointers, len(contexts), cohort.patience(cohort.barriers_of(self.kernel)))

    def _work_in_clusters(self, launch: Launch, workers: Sequence[Worker]) -> None:
        size = math.prod(launch.cluster)
        first = []
        explicit = launch.options.cluster is not None or self.kernel.cluster is not None
        for start in range(0, len(workers), size):
            members = workers[start : start + size]
            cluster = Cluster(
                sizes=launch.cluster, explicit=explicit, first=(launch.options.seed or 0) % size
            )
            addresses = [ctypes.addressof(member.context) for member in members]
            peers = (ctypes.c_void_p * size)(*addresses)
            for rank, member in enumerate(members):
                member.join(cluster, peers, rank)
            first.append(addresses[0])
        limit = clusters.ENDLESS_PATIENCE
        if self.polling.loops:
            limit = cohort.patience(cohort.barriers_of(self.kernel))
        self._entry((ctypes.c_void_p * len(first))(*first), len(first), limit)

    def work(self, worker: Worker) -> None:
        """Run the blocks of a worker's share in the calling thread."""
        self._entry(ctypes.byref(worker.context))
