"""From what a launch did to how long it would take at best: a roofline, never a measurement.

A modelled time is a lower bound under ideal overlap: the slowest of memory traffic, tensor cores
and instruction issue, plus the cost of a launch. It says nothing about latency, occupancy, cache
misses or bank conflicts, and is labelled as modelled wherever it is shown.
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
LAUNCH_US = 2.0
"""Order of magnitude of one empty kernel on a stream that is kept busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What one launch executed."""

    instructions: int = 0
    """Warp instructions issued."""
    global_bytes: int = 0
    """Bytes that threads read from and wrote to global memory, before any cache."""
    footprint_bytes: int = 0
    """What has to move at least once: the sectors touched, but no more than all arguments hold."""
    mma_operations: Mapping[str, int] = field(default_factory=dict)
    """Multiplications and additions on tensor cores, by input type: `f16`, `bf16`, `tf32`, …"""

    @classmethod
    def of(cls, events: Mapping[str, int], argument_bytes: int, mma_type: str = "") -> Counts:
        """From the machine's counts by name.

        Args:
            events: `LaunchReport.counts`.
            argument_bytes: size of all storages that were passed.
            mma_type: input type of the kernel's tensor core instructions, if it has any.
        """
        operations = events.get("mma_operations", 0)
        return cls(
            instructions=events.get("warp_instructions", 0),
            global_bytes=events.get("loaded_bytes", 0) + events.get("stored_bytes", 0),
            footprint_bytes=min(SECTOR_BYTES * events.get("sectors", 0), argument_bytes),
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
    source: str

    @property
    def issue_per_s(self) -> float:
        """Most warp instructions per second."""
        return self.multiprocessors * WARP_SCHEDULERS * self.clock_ghz * 1e9


def _peaks(half: float, tf32: float, byte: float, double: float) -> Mapping[str, float]:
    peaks = {"f16": half, "bf16": half, "tf32": tf32, "e4m3": byte, "e5m2": byte, "s8": byte}
    return MappingProxyType({**peaks, "u8": byte, "f64": double})


TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "A100": Target(
            name="A100 SXM 80 GB",
            multiprocessors=108,
            clock_ghz=1.41,
            memory_gb_per_s=2039,
            mma_tflop_per_s=_peaks(312, 156, 624, 19.5),
            source="NVIDIA A100 Tensor Core GPU data sheet; clock: A100 architecture white paper",
        ),
        "H100": Target(
            name="H100 SXM 80 GB",
            multiprocessors=132,
            clock_ghz=1.98,
            memory_gb_per_s=3350,
            mma_tflop_per_s=_peaks(989, 494.5, 1979, 67),
            source="NVIDIA H100 Tensor Core GPU data sheet, half of the figures with sparsity",
        ),
        "B200": Target(
            name="B200 SXM 180 GB",
            multiprocessors=148,
            clock_ghz=1.965,
            memory_gb_per_s=7700,
            mma_tflop_per_s=_peaks(2250, 1125, 4500, 37),
            source="NVIDIA HGX B200 data sheet, half of the figures with sparsity, an eighth of "
            "the board's; clock from its FP32 peak over 148 × 128 lanes",
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledTime:
    """The parts of a modelled time, microseconds."""

    target: str
    memory_us: float
    tensor_cores_us: float
    issue_us: float
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

    Raises:
        ValueError: a tensor core input type of which the target's peak is not known.
    """
    unknown = [kind for kind in counts.mma_operations if kind not in target.mma_tflop_per_s]
    if unknown:
        raise ValueError(f"no tensor core peak of {target.name} for {', '.join(unknown)}")
    tensor_cores_us = sum(
        operations / (target.mma_tflop_per_s[kind] * 1e6)
        for kind, operations in counts.mma_operations.items()
    )
    return ModelledTime(
        target=target.name,
        memory_us=counts.footprint_bytes / (target.memory_gb_per_s * 1e3),
        tensor_cores_us=tensor_cores_us,
        issue_us=counts.instructions / target.issue_per_s * 1e6,
    )


def modelled_time_us(counts: Counts, target: Target) -> float:
    """`model(…).total_us`."""
    return model(counts, target).total_us
