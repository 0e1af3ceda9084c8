"""KernelBench's rule, replicated for comparison: what an `allclose` grader says.

Trials on the reference's own inputs at one shape, one dtype, `torch.allclose` with equal absolute
and relative tolerance, shapes compared, nothing else. `plan` and `judge` ask it with the probes of
a verdict, at the base shape; a `Rule` with its `Tally` asks it to the letter, see `trials`.

Facts: KernelBench `eval.py` at commit 423217d (`run_and_check_correctness`,
`get_tolerance_for_precision`): 1e-4 in float32 and 1e-2 in half types; the paper and version 0 used
1e-2 throughout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ..tasks.inputs import dtype_named
from ..tasks.model import Task
from ..tasks.probe import Probe
from .comparison import evidence_of, fault_text
from .results import Results
from .verdict import Finding, failed, not_applicable, passed

NAME = "allclose"
TRIALS = 5
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
PAPER_TOLERANCE = 1e-2
"""What version 0 and the paper used."""
MISMATCH = "Output mismatch"
SHAPE_MISMATCH = "Output shape mismatch"
MISMATCHES = (MISMATCH, SHAPE_MISMATCH)
"""How the reason of a failure begins that is no exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What settles correctness in KernelBench's evaluation; the defaults are its script's."""

    trials: int = TRIALS
    seed: int = 42
    """Given before both constructors; the seeds of the trials follow from it."""
    precision: str = "float32"
    """Every tensor, integers included, is cast to it."""
    tolerance: float | None = None
    """Absolute and relative; `None` is KernelBench's own for the precision."""

    @property
    def limit(self) -> float:
        """The tolerance that holds."""
        dtype = dtype_named(self.precision)
        return TOLERANCE[dtype] if self.tolerance is None else self.tolerance

    def trial_seeds(self) -> list[int]:
        """One seed a trial, drawn as KernelBench draws them."""
        generator = torch.Generator().manual_seed(self.seed)
        draws = [torch.randint(0, 2**32 - 1, (1,), generator=generator) for _ in range(self.trials)]
        return [int(draw.item()) for draw in draws]

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ValueError(f"at least one trial is needed, not {self.trials}")
        if dtype_named(self.precision) not in TOLERANCE:
            raise ValueError(f"no precision {self.precision!r}: float32, float16 or bfloat16")

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping from which `Rule(**data)` rebuilds an equal rule."""
        return asdict(self)


@dataclass(slots=True)
class Tally:
    """Trials counted as KernelBench counts them, with the words it uses."""

    rule: Rule
    passed: int = 0
    max_differences: tuple[float, ...] = ()
    """Largest difference of each trial that was out of tolerance."""
    mean_differences: tuple[float, ...] = ()
    issue: str = ""
    """Why the outputs count as wrong."""
    error: str = ""
    """Name and text of what was raised, by the reference, the candidate or the comparison."""

    @property
    def decided(self) -> bool:
        """Whether KernelBench makes no further trial: after another shape, or an exception."""
        return bool(self.error) or self.issue.startswith(SHAPE_MISMATCH)

    def compare(self, want: Any, have: Any) -> None:
        """Count one trial; what the comparison itself raises is an error, as in KernelBench.

        Args:
            want: what the reference returned.
            have: what the candidate returned.
        """
        try:
            self._compare(want, have)
        except (AttributeError, RuntimeError, TypeError) as error:
            self.error = f"{error_name(error)}: {error}"

    def _compare(self, want: Any, have: Any) -> None:
        if want.shape != have.shape:
            self.issue = f"{SHAPE_MISMATCH}: Expected {want.shape}, got {have.shape}"
            return
        if torch.allclose(want, have, atol=self.rule.limit, rtol=self.rule.limit):
            self.passed += 1
            return
        difference = torch.abs(want - have)
        self.max_differences += (torch.max(difference).item(),)
        self.mean_differences += (torch.mean(difference).item(),)
        self.issue = MISMATCH

    def finding(self) -> Finding:
        """The tally as a finding."""
        measured = self._measured()
        if not self.issue and not self.error:
            return passed(NAME, f"{self.passed} trials within tolerance", **measured)
        return failed(
            NAME, self.error or self.issue, score=self.passed / self.rule.trials, **measured
        )

    def _measured(self) -> Mapping[str, float]:
        measured = {"trials": float(self.rule.trials), "passed_trials": float(self.passed)}
        for kind, differences in (("max", self.max_differences), ("avg", self.mean_differences)):
            for number, difference in enumerate(differences):
                measured[f"{kind}_difference_{number}"] = difference
        return measured


def error_name(error: BaseException) -> str:
    """The type of an exception with its module, `builtins.RuntimeError`."""
    return f"{type(error).__module__}.{type(error).__name__}"


def plan(task: Task) -> tuple[Probe, ...]:
    """Five draws of the task's own inputs at the base shape."""
    base = dict(task.family.base)
    return tuple(Probe(sizes=base, values="own", seed=seed) for seed in range(TRIALS))


def judge(results: Results, tolerance: float | None = None) -> Finding:
    """Accept if `torch.allclose` holds in every trial.

    Args:
        results: observations and truths; compared is the working-precision reference.
        tolerance: absolute and relative; `None` is KernelBench's own for the dtype.
    """
    worst = needed = 0.0
    wrong = ""
    asked = [p for p in results.asked(plan(results.task)) if p in results.observations]
    for probe in asked:
        truth, seen = results.truths[probe], results.observations[probe]
        if truth.error:
            return not_applicable(NAME, f"the reference fails: {truth.error}")
        if seen.fault is not None:
            return failed(NAME, fault_text(seen.fault), evidence=(evidence_of(probe),))
        if not truth.outputs or not seen.outputs:
            return failed(NAME, "nothing came back", evidence=(evidence_of(probe),))
        want, have = truth.outputs[0].working, seen.outputs[0].data
        if want.shape != have.shape:
            return failed(NAME, f"shape {tuple(have.shape)} instead of {tuple(want.shape)}")
        if want.dtype != have.dtype:
            return failed(NAME, f"dtype {have.dtype} instead of {want.dtype}")
        limit = TOLERANCE.get(want.dtype, 1e-4) if tolerance is None else tolerance
        worst = max(
            worst, float((want.double() - have.double()).abs().max()) if want.numel() else 0.0
        )
        needed = max(needed, needed_tolerance(want, have))
        if not wrong and not torch.allclose(want, have, atol=limit, rtol=limit):
            wrong = f"{probe.label}: differs by {worst:.2g}"
    if not asked:
        return not_applicable(NAME, "no trial was made")
    measured = {"largest_difference": worst, "needed_tolerance": needed}
    if wrong:
        return failed(NAME, wrong, **measured)
    return passed(NAME, f"{len(asked)} trials within tolerance", **measured)


def needed_tolerance(want: torch.Tensor, have: torch.Tensor) -> float:
    """The smallest absolute and relative tolerance at which `torch.allclose` accepts.

    Its condition |want − have| ≤ t + t·|have| solved for t, at the worst element; infinite where a
    NaN or an infinity is out of place.

    Args:
        want: the reference's output, any shape and dtype.
        have: the candidate's, of the same shape and dtype.
    """
    if want.numel() == 0:
        return 0.0
    want, have = want.double(), have.double()
    needed = torch.where(want == have, 0.0, (want - have).abs() / (1.0 + have.abs()))
    return float(needed.nan_to_num(nan=math.inf, posinf=math.inf).max())
