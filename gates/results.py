"""Results: what every gate judges, probe by probe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..tasks.model import Task
from ..tasks.observation import KernelResources, Observation
from ..tasks.probe import Probe
from .truth import Truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Observations of one candidate beside the truths of the same probes."""

    task: Task
    truths: Mapping[Probe, Truth]
    observations: Mapping[Probe, Observation]
    seed: int = 0
    """Added to the seed of every planned probe."""
    resources: tuple[KernelResources, ...] = ()
    """Ahead-of-time compiles of every kernel the candidate launched."""
    resources_note: str = ""
    """What was left out, in words."""

    def asked(self, planned: Iterable[Probe]) -> list[Probe]:
        """The planned probes as they were really made, under this verdict's seed."""
        return instantiate(self.task, planned, self.seed)


def instantiate(task: Task, planned: Iterable[Probe], seed: int) -> list[Probe]:
    """Planned probes as one verdict makes them, each once.

    They are moved to its seed, so that a policy cannot learn the inputs of one verdict; and those
    in float32 to the task's own dtype, where the task does not demand float32.
    """
    made = (
        replace(
            probe,
            seed=probe.seed + seed,
            dtype=task.working_dtype if probe.dtype == "float32" else probe.dtype,
        )
        for probe in planned
    )
    return list(dict.fromkeys(made))
