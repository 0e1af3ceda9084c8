"""Episodes: the verdicts of one completion, one or one a turn, and which of them counts."""

from __future__ import annotations

from collections.abc import Sequence

from ..gates.verdict import Verdict
from ..reward.rewards import Reward

Attempts = Sequence[Verdict]
"""The verdicts of one completion, in the order of its attempts."""


def best_reward(reward: Reward, attempts: Attempts) -> float | None:
    """The highest reward: 0 without any attempt, `None` if all of them are void."""
    values = [reward(verdict) for verdict in attempts]
    scored = [value for value in values if value is not None]
    if scored:
        return max(scored)
    return None if values else 0.0


def best_verdict(reward: Reward, attempts: Attempts) -> Verdict | None:
    """The verdict that earns the highest reward, a void one only where there is no other."""

    def worth(verdict: Verdict) -> float:
        value = reward(verdict)
        return -1.0 if value is None else value

    return max(attempts, key=worth, default=None)
