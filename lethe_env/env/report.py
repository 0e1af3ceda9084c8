"""What a step reports beside its reward, and the verdict on an action that is no source text."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..gates.battery import GATE_NAMES
from ..gates.kernelbench_rule import NAME as ALLCLOSE
from ..gates.verdict import Verdict, failed
from ..tasks.model import Task


def refused(task: Task, reason: str) -> Verdict:
    """The verdict on something that is no member of the action space: every gate fails."""
    return Verdict(
        task=task.to_json(),
        source="",
        findings=tuple(failed(gate, f"not judged: {reason}") for gate in GATE_NAMES),
        fault=reason,
        allclose=failed(ALLCLOSE, reason),
    )


def status_of(verdict: Verdict) -> str:
    """`infra` if the harness broke, else `pass` or `fail`."""
    if verdict.errored:
        return "infra"
    return "pass" if verdict.passed else "fail"


def worth(verdict: Verdict, reward: Callable[[Verdict], float | None]) -> float | None:
    """The reward of a verdict, `None` where there is nothing to learn from it.

    Raises:
        ValueError: the reward is not a finite number.
    """
    if verdict.errored:
        return None
    value = reward(verdict)
    if value is None:
        return None
    if not math.isfinite(value):
        raise ValueError(f"{reward!r} returned {value!r}; a reward has to be finite")
    return float(value)


def verdict_info(verdict: Verdict) -> dict[str, Any]:
    """The verdict in plain values: no times, no NaN, nothing shared with another call."""
    return {
        "status": status_of(verdict),
        "gates": {finding.gate: finding.status.value for finding in verdict.findings},
        "scores": {finding.gate: float(finding.score) for finding in verdict.findings},
        "rejected_by": list(verdict.rejected_by),
        "traces": sorted(verdict.channels),
        "kernel": verdict.kernel,
        "fault": verdict.fault,
        "allclose": verdict.allclose.status.value if verdict.allclose else "not_asked",
        "floor": verdict.floor_passed and not verdict.errored,
    }
