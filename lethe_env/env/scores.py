"""The evaluation: samples, and every number that is drawn from them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..gates.battery import GATE_NAMES
from ..gates.verdict import Status
from . import storage
from .samples import Sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

PASS_AT = (1, 2, 5, 10, 20, 50, 100)
FAST_AT = (0.0, 1.0, 1.5, 2.0)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Samples of a policy, or of a folder of kernels, with their verdicts.

    Every rate leaves out what the harness failed to judge (`infra` counts it) and is `None` where
    there is nothing to take it from. A policy that raised or hung counts as a failed sample.
    """

    samples: tuple[Sample, ...]

    @property
    def judged(self) -> tuple[Sample, ...]:
        """The samples that count."""
        return tuple(sample for sample in self.samples if sample.judged)

    @property
    def infra(self) -> int:
        """Samples that the harness failed to judge."""
        return len(self.samples) - len(self.judged)

    @property
    def pass_rate(self) -> float | None:
        """Share of samples that the contract accepts."""
        return _share(self.judged, lambda sample: sample.passed)

    @property
    def allclose_rate(self) -> float | None:
        """Share of samples that KernelBench's rule accepts."""
        return _share(self.judged, lambda sample: sample.allclose_accepts)

    @property
    def false_accepts(self) -> tuple[Sample, ...]:
        """Samples that KernelBench's rule accepts and the contract rejects."""
        return tuple(sample for sample in self.samples if sample.false_accept)

    @property
    def false_accept_rate(self) -> float | None:
        """Share of what KernelBench's rule accepts that the contract rejects."""
        accepted = [sample for sample in self.samples if sample.allclose_accepts]
        return _share(accepted, lambda sample: sample.false_accept)

    def false_accept_gates(self) -> dict[str, int]:
        """By gate or trace, how many false accepts it rejects; most frequent first."""
        named = Counter(
            name
            for sample in self.false_accepts
            if sample.verdict is not None
            for name in sample.verdict.rejected_by
        )
        return dict(named.most_common())

    def gate_pass_rates(self) -> dict[str, float | None]:
        """By gate, the share of judged verdicts to which it applied that passed it."""
        rates: dict[str, float | None] = {}
        verdicts = [sample.verdict for sample in self.judged if sample.verdict is not None]
        for gate in GATE_NAMES:
            found = [f.status for v in verdicts for f in v.findings if f.gate == gate]
            asked = [status for status in found if status in (Status.PASS, Status.FAIL)]
            rates[gate] = _share(asked, lambda status: status is Status.PASS)
        return rates

    def op_class_pass_rates(self) -> dict[str, float | None]:
        """By op class, the share of samples that the contract accepts."""
        classes = sorted({sample.op_class for sample in self.samples})
        return {name: _share(self._of(name), lambda sample: sample.passed) for name in classes}

    def pass_at(self, k: int) -> float | None:
        """Chance that at least one of k samples of a task passes, averaged over the tasks.

        The unbiased estimator of Chen et al. 2021, "Evaluating Large Language Models Trained on
        Code" (arXiv 2107.03374), equation 1: with n samples of which c pass,
        1 - C(n - c, k) / C(n, k). Tasks with fewer than k judged samples are left out.
        """
        if k < 1:
            raise ValueError(f"pass@{k}: k has to be at least 1")
        by_task: dict[str, list[bool]] = defaultdict(list)
        for sample in self.judged:
            by_task[sample.task].append(sample.passed)
        chances = [
            1 - math.comb(len(passed) - sum(passed), k) / math.comb(len(passed), k)
            for passed in by_task.values()
            if len(passed) >= k
        ]
        return sum(chances) / len(chances) if chances else None

    def fast(self, p: float) -> float | None:
        """Share of samples that pass and are more than p times as fast as eager PyTorch.

        KernelBench's fast_p (Ouyang et al. 2025, arXiv 2502.10517), with the contract in place of
        its correctness. `None` where no sample was timed; `speed_kinds` says how they were.
        """
        if not any(sample.speedup is not None for sample in self.judged):
            return None
        return _share(self.judged, lambda s: s.passed and s.speedup is not None and s.speedup > p)

    def speed_kinds(self) -> tuple[str, ...]:
        """How the samples were timed: `modelled`, `measured`, both or neither."""
        return tuple(sorted({s.speed_kind for s in self.samples if s.speed_kind is not None}))

    def summary(self) -> dict[str, Any]:
        """Every number in one JSON-ready mapping."""
        return {
            "samples": len(self.samples),
            "tasks": len({sample.task for sample in self.samples}),
            "status": dict(Counter(sample.status for sample in self.samples)),
            "infra": self.infra,
            "pass_rate": self.pass_rate,
            "allclose_rate": self.allclose_rate,
            "false_accepts": len(self.false_accepts),
            "false_accept_rate": self.false_accept_rate,
            "false_accept_gates": self.false_accept_gates(),
            "gate_pass_rates": self.gate_pass_rates(),
            "op_class_pass_rates": self.op_class_pass_rates(),
            "pass_at": _known({str(k): self.pass_at(k) for k in PASS_AT}),
            "fast": _known({str(p): self.fast(p) for p in FAST_AT}),
            "speed_kinds": list(self.speed_kinds()),
        }

    def to_pandas(self) -> DataFrame:
        """One row per sample, one column per gate with its status.

        Raises:
            ImportError: pandas is not installed.
        """
        return storage.to_pandas(self.samples)

    def save(self, folder: str | Path) -> Path:
        """Write `samples.parquet` and `summary.json`, from which `load` reads it back."""
        return storage.save(self.samples, self.summary(), Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Evaluation:
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: there is no evaluation in this folder.
            ValueError: its verdicts are of another version.
        """
        return cls(storage.load(Path(folder)))

    def plot(self) -> Figure:
        """Acceptance by both graders, pass@k, pass rates per gate and per op class.

        Raises:
            ImportError: matplotlib is not installed.
        """
        from .plot import evaluation_figure

        return evaluation_figure(self)

    def _of(self, op_class: str) -> list[Sample]:
        return [sample for sample in self.judged if sample.op_class == op_class]


def _share(items: Iterable[Any], holds: Callable[[Any], bool]) -> float | None:
    held = [holds(item) for item in items]
    return sum(held) / len(held) if held else None


def _known(values: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}
