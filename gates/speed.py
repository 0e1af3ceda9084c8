"""Speed: how long the candidate and the reference take, modelled or measured.

A modelled time is computed from counts and data-sheet figures, see `docs/virtual_gpu.md`; it is
the same on every machine. A measured one is taken on a GPU by the judge's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..tasks.work import KernelWork

KINDS = ("modelled", "measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Times of one call whose outputs were right, and what it did."""

    kind: str
    """`modelled` or `measured`."""
    target: str
    """The GPU: `A100` for a modelled time, the device's own name for a measured one."""
    probe: str
    """Label of the timed call."""
    candidate_us: float
    eager_us: float
    """The reference, each torch operation a kernel of its own."""
    launches: int = 0
    """Kernel launches of the candidate."""
    operations: int = 0
    """Torch operations that the candidate ran outside its kernels."""
    bytes: int = 0
    """Bytes that the candidate has to move, kernels and torch operations together."""
    mma_operations: Mapping[str, int] = field(default_factory=dict)
    """On tensor cores, kernels only, by input type."""
    kernels: tuple[KernelWork, ...] = ()
    """Counts of every kernel, all its launches together."""

    @property
    def speedup(self) -> float:
        """How many times faster than the reference."""
        return self.eager_us / self.candidate_us

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a time is {' or '.join(KINDS)}, not {self.kind!r}")
        if not (self.candidate_us > 0 and self.eager_us >= 0):
            raise ValueError(f"no times: {self.candidate_us} µs and {self.eager_us} µs")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Speed:
        """Rebuild from a verdict's JSON."""
        return cls(**{**data, "kernels": tuple(KernelWork(**item) for item in data["kernels"])})
