"""The shape of a reward: what each part of a verdict is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


def _gate_weights() -> dict[str, float]:
    return {"CMP-01": 3.0, "CMP-02": 2.0, "CMP-03": 2.0, "RES-01": 0.5, "RES-02": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardShape:
    """Weights and limits of the rewards.

    A candidate earns, from bottom to top: 0 if it cannot run, `base` if it runs, up to
    `partial_limit` for the gates it passes, `solved` if nothing speaks against it, and only then
    something for speed. The constructor refuses numbers that would let a failing kernel overtake a
    passing one.
    """

    base: float = 0.1
    """For source that loads and returns something from at least one call."""
    partial_limit: float = 0.6
    """What a candidate comes close to that passes almost every gate but not all."""
    solved: float = 1.0
    """For a candidate that the rule in question accepts and that is as fast as eager."""
    gate_weights: Mapping[str, float] = field(default_factory=_gate_weights)
    """Gate name to weight; a gate that is not named weighs 1. By default values weigh most, since
    a kernel that writes zeros is deterministic and well placed."""
    trace_weight: float = 1.0
    """Weight, beside the gates, of leaving no forbidden trace, such as a race."""
    closeness_share: float = 0.5
    """Which part of a failed numeric gate's score is how near the worst error came to its bound;
    the rest is the share of probes passed."""
    closeness_decades: float = 6.0
    """How many powers of ten over its bound an error may be before closeness is zero. Six spans
    from just outside to wrong in every digit of a float32."""
    failed_gate_limit: float = 0.9
    """Highest score of a gate that fails, so that fixing it always raises the reward."""
    speed_weight: float = 0.1
    """For each doubling of speed over eager PyTorch; 0 leaves speed out."""
    slowest_doublings: float = -2.0
    """Where the speed term stops falling: -2 is four times slower than eager."""
    fastest_doublings: float = 4.0
    """Where the speed term stops rising: 4 is sixteen times faster than eager."""

    def __post_init__(self) -> None:
        numbers = [*self._numbers(), *self.gate_weights.values()]
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError("RewardShape: every number has to be finite")
        weights = (*self.gate_weights.values(), self.trace_weight, self.speed_weight)
        if min(weights) < 0:
            raise ValueError("RewardShape: weights must not be negative")
        if not 0 <= self.closeness_share <= 1 or not 0 <= self.failed_gate_limit < 1:
            raise ValueError(
                "RewardShape: closeness_share lies in [0, 1] and failed_gate_limit in [0, 1)"
            )
        if self.closeness_decades <= 0 or self.slowest_doublings > self.fastest_doublings:
            raise ValueError(
                "RewardShape: closeness_decades must be positive and slowest_doublings at most "
                "fastest_doublings"
            )
        if not 0 <= self.base <= self.partial_limit < self.lowest_solved:
            raise ValueError(
                f"RewardShape: 0 ≤ base {self.base} ≤ partial_limit {self.partial_limit} < slowest "
                f"accepted {self.lowest_solved} must hold, or a failing kernel could outrank a "
                "passing one"
            )

    def _numbers(self) -> tuple[float, ...]:
        return (
            self.base,
            self.partial_limit,
            self.solved,
            self.trace_weight,
            self.closeness_share,
            self.closeness_decades,
            self.failed_gate_limit,
            self.speed_weight,
            self.slowest_doublings,
            self.fastest_doublings,
        )

    @property
    def lowest_solved(self) -> float:
        """The reward of an accepted candidate that is as slow as the clip can tell."""
        return self.solved + self.speed_weight * min(0.0, self.slowest_doublings)

    @property
    def highest_solved(self) -> float:
        """The reward of an accepted candidate that is as fast as the clip can tell."""
        return self.solved + self.speed_weight * max(0.0, self.fastest_doublings)

    def weight(self, gate: str) -> float:
        """Weight of one gate."""
        return self.gate_weights.get(gate, 1.0)

    def speed_term(self, speedup: float | None) -> float:
        """What a speed-up over eager is worth.

        A time that is not known counts as the slowest, or a kernel that is wrong on the timed call
        would be worth more than an honest one that is slower than eager.

        Args:
            speedup: eager time over candidate time; `None` or NaN where nothing was timed.
        """
        known = speedup is not None and speedup > 0
        doublings = math.log2(speedup) if known else -math.inf
        return self.speed_weight * min(
            max(doublings, self.slowest_doublings), self.fastest_doublings
        )
