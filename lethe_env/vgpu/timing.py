"""From what a launch did to how long it would take at best: a roofline, never a measurement.

A modelled time is a lower bound under ideal overlap: the slowest of memory traffic, tensor cores,
instruction issue and arithmetic pipes, plus the cost of a launch. It says nothing about latency,
occupancy, cache misses or bank conflicts, and is labelled as modelled wherever it is shown.
`docs/virtual_gpu.md` names the public source of every constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

WARP_SCHEDULERS = 4
"""Per multiprocessor, each issues one warp instruction per clock (CUDA C++ Programming Guide,
architecture of compute capabilities 8.0, 9.0 and 10.0)."""
SECTOR_BYTES = 32
"""What global memory moves at least."""
MULTIPROCESSOR_BYTES_PER_CLOCK = 64
"""What one multiprocessor takes from the L2 cache per clock (A100 architecture white paper)."""
WARP_LANES = 32
SPECIAL_LANES = 16
"""Special functions (`ex2`, `rsqrt`, `sin`, …) that a multiprocessor begins per clock (CUDA C++
Programming Guide, throughput of native arithmetic instructions; alike on all targets)."""
LAUNCH_US = 2.0
"""Order of magnitude of one empty kernel on a stream that is kept busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What one launch executed."""

    blocks: int = 1
    warps: int = 1
    """Of all blocks together."""
    instructions: Mapping[str, int] = field(default_factory=dict)
    """Warp instructions issued, by class."""
    loaded_bytes: int = 0
    """Bytes that threads read from global memory, before any cache."""
    stored_bytes: int = 0
    """Bytes that threads wrote to global memory."""
    sectors: int = 0
    """Different 32-byte sectors of each memory instruction, added up."""
    footprint_bytes: int = 0
    """What has to move at least once: the sectors touched, but no more than all arguments hold."""
    bank_conflicts: int = 0
    """Extra passes through the banks of shared memory."""
    mma_operations: Mapping[str, int] = field(default_factory=dict)
    """Multiplications and additions on tensor cores, by input type: `f16`, `bf16`, `tf32`, …"""

    @classmethod
    def of(
        cls,
        events: Mapping[str, int],
        argument_bytes: int,
        mma_type: str = "",
        *,
        blocks: int = 1,
        warps: int = 1,
    ) -> Counts:
        """From the machine's counts by name.

        Args:
            events: `LaunchReport.counts`.
            argument_bytes: size of all storages that were passed.
            mma_type: input type of the kernel's tensor core instructions, if it has any.
            blocks: of the grid.
            warps: of one block.
        """
        operations = events.get("mma_operations", 0)
        prefix = "instructions."
        return cls(
            blocks=blocks,
            warps=blocks * warps,
            instructions={
                name.removeprefix(prefix): count
                for name, count in events.items()
                if name.startswith(prefix) and count
            },
            loaded_bytes=events.get("loaded_bytes", 0),
            stored_bytes=events.get("stored_bytes", 0),
            sectors=events.get("sectors", 0),
            footprint_bytes=min(SECTOR_BYTES * events.get("sectors", 0), argument_bytes),
            bank_conflicts=events.get("bank_conflicts", 0),
            mma_operations={mma_type: operations} if operations else {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A GPU by the figures of its data sheet, without sparsity."""

    name: str
    multiprocessors: int
    clock_ghz: float
    """Boost clock."""
    memory_gb_per_s: float
    mma_tflop_per_s: Mapping[str, float]
    """Peak of the tensor cores by input type."""
    lanes: Mapping[str, int]
    """Operations that a multiprocessor begins per clock, by the class of instruction, where that
    is fewer than it issues (CUDA C++ Programming Guide, as above)."""
    source: str

    @property
    def issue_per_s(self) -> float:
        """Most warp instructions per second."""
        return self.multiprocessors * WARP_SCHEDULERS * self.clock_ghz * 1e9

    @property
    def intake_gb_per_s(self) -> float:
        """What all multiprocessors together take from the L2 cache."""
        return self.multiprocessors * MULTIPROCESSOR_BYTES_PER_CLOCK * self.clock_ghz

    def pipe_per_s(self, kind: str) -> float:
        """Most warp instructions of one class per second."""
        if kind not in self.lanes:
            return self.issue_per_s
        return self.multiprocessors * self.lanes[kind] / WARP_LANES * self.clock_ghz * 1e9

    def flop_per_s(self, unit: str) -> float:
        """Peak of one unit: `f32` is fused multiply-adds outside the tensor cores.

        Raises:
            ValueError: the peak of this unit is not known.
        """
        if unit == "f32":
            return 2 * WARP_LANES * self.pipe_per_s(unit)
        if unit not in self.mma_tflop_per_s:
            raise ValueError(f"no tensor core peak of {self.name} for {unit}")
        return self.mma_tflop_per_s[unit] * 1e12


def _peaks(half: float, tf32: float, byte: float, double: float) -> Mapping[str, float]:
    peaks = {"f16": half, "bf16": half, "tf32": tf32, "e4m3": byte, "e5m2": byte, "s8": byte}
    return MappingProxyType({**peaks, "u8": byte, "f64": double})


def _lanes(single: int, double: int) -> Mapping[str, int]:
    return MappingProxyType({"f32": single, "f64": double, "special": SPECIAL_LANES})


TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "A100": Target(
            name="A100 SXM 80 GB",
            multiprocessors=108,
            clock_ghz=1.41,
            memory_gb_per_s=2039,
            mma_tflop_per_s=_peaks(312, 156, 624, 19.5),
            lanes=_lanes(64, 32),
            source="NVIDIA A100 Tensor Core GPU data sheet; clock: A100 architecture white paper",
        ),
        "H100": Target(
            name="H100 SXM 80 GB",
            multiprocessors=132,
            clock_ghz=1.98,
            memory_gb_per_s=3350,
            mma_tflop_per_s=_peaks(989, 494.5, 1979, 67),
            lanes=_lanes(128, 64),
            source="NVIDIA H100 Tensor Core GPU data sheet, half of the figures with sparsity",
        ),
        "B200": Target(
            name="B200 SXM 180 GB",
            multiprocessors=148,
            clock_ghz=1.965,
            memory_gb_per_s=7700,
            mma_tflop_per_s=_peaks(2250, 1125, 4500, 37),
            lanes=_lanes(128, 64),
            source="NVIDIA HGX B200 data sheet, half of the figures with sparsity, an eighth of "
            "the board's; clock from its FP32 peak over 148 × 128 lanes",
        ),
    }
)


ARCHITECTURES: Mapping[int, str] = MappingProxyType({80: "A100", 90: "H100", 100: "B200"})
"""Compute capabilities whose code can be run, ten times the number, and the GPU of each."""
DEFAULT_ARCHITECTURE = 80
"""The one with the fewest instructions, which newer ones have, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledTime:
    """The parts of a modelled time, microseconds."""

    target: str
    memory_us: float
    tensor_cores_us: float = 0.0
    issue_us: float = 0.0
    """Issue of all instructions, or the busiest arithmetic pipe if that takes longer."""
    launch_us: float = LAUNCH_US

    @property
    def total_us(self) -> float:
        """The slowest part, and the launch."""
        return self.launch_us + max(self.memory_us, self.tensor_cores_us, self.issue_us)

    @property
    def limited_by(self) -> str:
        """Which part is the slowest: `memory`, `tensor cores` or `issue`."""
        parts = {
            "memory": self.memory_us,
            "tensor cores": self.tensor_cores_us,
            "issue": self.issue_us,
        }
        return max(parts, key=parts.__getitem__)


def model(counts: Counts, target: Target) -> ModelledTime:
    """The roofline of one launch.

    A grid of fewer blocks than multiprocessors uses only as many of them.

    Raises:
        ValueError: a tensor core input type of which the target's peak is not known.
    """
    share = min(counts.blocks, target.multiprocessors) / target.multiprocessors
    schedulers = target.multiprocessors * WARP_SCHEDULERS
    issued = sum(counts.instructions.values()) / target.issue_per_s
    issued /= min(share, counts.warps / schedulers)
    pipes = [count / target.pipe_per_s(kind) / share for kind, count in counts.instructions.items()]
    taken = counts.footprint_bytes / (share * target.intake_gb_per_s * 1e3)
    return ModelledTime(
        target=target.name,
        memory_us=max(_memory_us(counts.footprint_bytes, target), taken),
        tensor_cores_us=_products_us(counts.mma_operations, target) / share,
        issue_us=max([issued, *pipes]) * 1e6,
    )


def model_operation(moved_bytes: int, products: Mapping[str, int], target: Target) -> ModelledTime:
    """The roofline of a torch operation that is a kernel of its own.

    Args:
        moved_bytes: of operands and results.
        products: multiplications and additions by unit, see `Target.flop_per_s`.
        target: the GPU.

    Raises:
        ValueError: a unit of which the target's peak is not known.
    """
    return ModelledTime(
        target=target.name,
        memory_us=_memory_us(moved_bytes, target),
        tensor_cores_us=_products_us(products, target),
    )


def modelled_time_us(counts: Counts, target: Target) -> float:
    """`model(…).total_us`."""
    return model(counts, target).total_us


def _memory_us(moved_bytes: int, target: Target) -> float:
    return moved_bytes / (target.memory_gb_per_s * 1e3)


def _products_us(products: Mapping[str, int], target: Target) -> float:
    return sum(count / target.flop_per_s(unit) * 1e6 for unit, count in products.items())
