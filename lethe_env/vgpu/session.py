"""What launches on the virtual GPU share, and what comes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .arguments import Argument
from .cores import default_threads
from .machine import program
from .machine.layout import MOST_RANKS, RANK_BITS
from .machine.report import Finding as MachineFinding
from .memory import WINDOW_BITS, AddressSpace, Pointer
from .timing import Counts

_EARLY_LAUNCHES = 4
"""One in so many launches is early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something a kernel did that no correct kernel does."""

    kind: str
    """`out_of_bounds`, `uninitialised_read`, `race` between blocks, `barrier`: a race within a
    block, or `asynchronous`: a misuse of tensor memory or of another unit beside the warps.
    """
    kernel: str
    opcode: str
    file: str = ""
    line: int = 0
    """Line of the kernel's source, 0 if unknown."""
    lanes: int = 0
    """How many threads did it."""
    detail: str = ""
    """Which memory, in words."""


class LaunchError(RuntimeError):
    """A launch ended as it would on a GPU: with an error that says little."""


_STOPS = {
    "assert": "CUDA error: device-side assert triggered",
    "trap": "CUDA error: unspecified launch failure",
    "deadlock": "the kernel hangs: threads wait for what no other thread will ever do",
}


@dataclass(slots=True)
class Session:
    """What launches share: memory, schedule, and what was seen so far."""

    memory: AddressSpace = field(default_factory=AddressSpace)
    seed: int = 0
    """Order in which blocks run; changes with every launch."""
    threads: int = field(default_factory=default_threads)
    """Most operating system threads that share the blocks of a launch. Results and findings do not
    depend on it.
    """
    early: bool | None = None
    """Whether units beside the warps work as early as they may, or as late; by default one launch
    in four is early."""
    sanitize: bool = True
    """Whether races, missing barriers and reads of undefined memory are looked for; bounds always
    are."""
    printed: list[str] = field(default_factory=list)
    """What `tl.device_print` wrote."""
    findings: list[Finding] = field(default_factory=list)
    counts: list[tuple[str, Counts]] = field(default_factory=list)
    """Kernel name and counts of each launch."""
    launches: int = 0
    watch: Callable[[bool], None] = lambda running: None
    """Told when native code begins and ends."""

    def launch(
        self,
        function: program.Program,
        name: str,
        grid: tuple[int, int, int],
        arguments: Sequence[Argument],
        shared_bytes: int,
        tensors: Mapping[str, Pointer] | None = None,
        cluster: tuple[int, int, int] | None = None,
    ) -> None:
        """Run a kernel, and keep what it did.

        Args:
            function: the kernel.
            name: as findings and counts have it.
            grid: blocks along x, y and z; none may be 0.
            arguments: of the kernel, in order.
            shared_bytes: dynamic shared memory of each block.
            tensors: what findings call the memory of the arguments; by default the pointers
                among them, by their own names.
            cluster: blocks per cluster, if the launch says.

        Raises:
            LaunchError: it ended early.
        """
        self.memory.sweep()
        self.launches += 1
        early = (self.seed + self.launches) % _EARLY_LAUNCHES == 0
        options = program.Options(
            shared_bytes=shared_bytes,
            seed=self.seed + self.launches,
            threads=self.threads,
            races=self.sanitize,
            definedness=self.sanitize,
            barriers=self.sanitize,
            early=early if self.early is None else self.early,
            cluster=cluster,
        )
        self.watch(True)
        report = function.run(grid, arguments, self.memory, options)
        self.watch(False)
        pointers = [p for p in arguments if isinstance(p, Pointer)]
        owners = tensors or {p.name: p for p in pointers if p.name}
        self.findings += [self._finding(found, name, owners) for found in report.findings]
        windows = {p.address >> WINDOW_BITS for p in (*pointers, *owners.values())}
        held_bytes = sum(int(self.memory.table[number, 1]) for number in windows)
        counts = Counts.of(
            report.counts,
            held_bytes,
            function.tensor_type,
            blocks=math.prod(grid),
            warps=function.warps,
        )
        self.counts.append((name, counts))
        self.printed += report.messages
        if report.stopped:
            raise LaunchError(f"{_STOPS[report.stopped]} {' '.join(report.messages[-1:])}".strip())

    def _finding(self, found: MachineFinding, name: str, owners: Mapping[str, Pointer]) -> Finding:
        place = found.location
        return Finding(
            kind=found.kind,
            kernel=name,
            opcode=found.opcode,
            file=place.file if place else "",
            line=place.line if place else 0,
            lanes=found.lanes,
            detail="; ".join(filter(None, (self._place(found, owners), found.detail))),
        )

    def _place(self, found: MachineFinding, owners: Mapping[str, Pointer]) -> str:
        parts = found.opcode.split(".")
        rank, byte = divmod(found.address, 1 << RANK_BITS)
        if "shared" in parts:
            return f"byte {byte} of the block's shared memory"
        if found.kind == "asynchronous":
            return ""  # the rest tells what was misused
        if "shared::cluster" in parts and rank < MOST_RANKS:
            return f"byte {byte} of the shared memory of the block of rank {rank} in the cluster"
        return self.memory.describe(found.address, owners)

    def take_findings(self) -> list[Finding]:
        """Hand over what was found, and forget it."""
        found, self.findings = self.findings, []
        return found
