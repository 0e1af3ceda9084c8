"""Rewards: callables from a verdict to a number, or to `None` if the harness broke.

All of them pay for one and the same verdict, so that what they would pay can be compared. None
pays more than `RewardShape.base` to a candidate without a kernel of its own (`Verdict.kernel`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ..gates.verdict import FATAL_CHANNELS, Finding, Status, Verdict
from .shape import RewardShape


class Reward(Protocol):
    """A verdict's worth."""

    @property
    def name(self) -> str:
        """Key of the reward in logs and configurations."""
        ...

    def __call__(self, verdict: Verdict) -> float | None:
        """A finite number, or `None` if and only if the verdict is void (`Verdict.errored`)."""
        ...


@dataclass(frozen=True, slots=True)
class ContractReward:
    """The contract: shaped by the gates, topped by speed once nothing speaks against a candidate.

    Values: 0 if nothing runs, `base` if it runs, `base` to `partial_limit` by the weighted mean of
    the applicable gates' scores, `lowest_solved` to `highest_solved` for `Verdict.passed`.
    """

    shape: RewardShape = field(default_factory=RewardShape)
    name: str = "contract"

    def __call__(self, verdict: Verdict) -> float | None:
        """The reward of one verdict."""
        if verdict.errored:
            return None
        if not runs(verdict):
            return 0.0
        if verdict.kernel != "triton":
            return self.shape.base
        if verdict.passed:
            return self.shape.solved + self.shape.speed_term(speedup(verdict))
        room = self.shape.partial_limit - self.shape.base
        return self.shape.base + room * self._mean_score(verdict)

    def _mean_score(self, verdict: Verdict) -> float:
        clean = not any(channel in verdict.channels for channel in FATAL_CHANNELS)
        scores = {f.gate: gate_score(f, self.shape) for f in verdict.findings}
        parts = [
            (self.shape.weight(gate), score) for gate, score in scores.items() if score is not None
        ]
        if not parts:
            return 0.0
        parts.append((self.shape.trace_weight, float(clean)))
        total = sum(weight for weight, _ in parts)
        return sum(weight * score for weight, score in parts) / total if total else 0.0


@dataclass(frozen=True, slots=True)
class AllcloseReward:
    """KernelBench's rule: five trials on public seeds, one tolerance, nothing else.

    It reads `Verdict.allclose` and no gate. Values: 0 for a rejected candidate, `base` for an
    accepted one without a kernel, `lowest_solved` to `highest_solved` for an accepted kernel.
    """

    shape: RewardShape = field(default_factory=RewardShape)
    name: str = "allclose"

    def __call__(self, verdict: Verdict) -> float | None:
        """The reward of one verdict."""
        if verdict.errored:
            return None
        if verdict.allclose is None or verdict.allclose.status is not Status.PASS:
            return 0.0
        if verdict.kernel != "triton":
            return self.shape.base
        return self.shape.solved + self.shape.speed_term(speedup(verdict))


@dataclass(frozen=True, slots=True)
class FloorReward:
    """The tolerance-free floor: special values, determinism, memory. It pays nothing for speed.

    Values: 0 if nothing runs, `base` if it runs, `solved` for `Verdict.floor_passed`.
    """

    shape: RewardShape = field(default_factory=RewardShape)
    name: str = "floor"

    def __call__(self, verdict: Verdict) -> float | None:
        """The reward of one verdict."""
        if verdict.errored:
            return None
        if not runs(verdict):
            return 0.0
        accepted = verdict.floor_passed and verdict.kernel == "triton"
        return self.shape.solved if accepted else self.shape.base


REWARDS: dict[str, Callable[[RewardShape], Reward]] = {
    "contract": ContractReward,
    "allclose": AllcloseReward,
    "floor": FloorReward,
}
"""Reward classes by name, each built from a shape."""


def gate_score(finding: Finding, shape: RewardShape) -> float | None:
    """What one gate is worth in [0, 1]; `None` where it had nothing to ask or the harness broke.

    A pass is 1. A failure is the share of probes passed, for gates that measure an error mixed with
    its closeness to the bound, 1 - log10(worst ratio) / decades, and stays below 1. A gate left
    unasked after another's failure is 0, so that a candidate that gets further earns more.
    """
    if finding.status is Status.PASS:
        return 1.0
    if finding.left_unasked:
        return 0.0
    if finding.status is not Status.FAIL:
        return None
    score = _unit(finding.score)
    ratio = finding.measured.get("worst_ratio")
    if ratio is not None:
        near = shape.closeness_share
        score = (1 - near) * score + near * _closeness(ratio, shape.closeness_decades)
    return shape.failed_gate_limit * score


def runs(verdict: Verdict) -> bool:
    """Whether the candidate loads and at least one call returned something."""
    if verdict.fault or not verdict.findings:
        return False
    returned = [
        f.measured["calls"] for f in verdict.findings if f.gate == _PLACEMENT and f.measured
    ]
    return all(calls > 0 for calls in returned)


_PLACEMENT = "RES-01"  # looks at every call of a verdict and counts those that returned


def speedup(verdict: Verdict) -> float | None:
    """Eager time over candidate time, modelled or measured; `None` where nothing was timed."""
    return None if verdict.speed is None else verdict.speed.speedup


def _closeness(ratio: float, decades: float) -> float:
    if math.isnan(ratio) or ratio <= 0:
        return 0.0
    return _unit(1 - math.log10(max(ratio, 1.0)) / decades)


def _unit(value: float) -> float:
    return 0.0 if math.isnan(value) else min(max(value, 0.0), 1.0)
