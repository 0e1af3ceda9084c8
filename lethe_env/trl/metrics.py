"""Metrics and columns of a batch, the same ones on every rank and in every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..gates.battery import GATE_NAMES
from ..gates.verdict import Status, Verdict
from ..reward.rewards import REWARDS, ContractReward
from ..reward.shape import RewardShape
from .episodes import Attempts, best_reward, best_verdict

REASON_CHARACTERS = 200


def metrics(batch: Sequence[Attempts], shape: RewardShape) -> dict[str, float]:
    """Means and shares of a batch, by name.

    `lethe/reward/<name>` is the mean of what each reward would pay, 0 if the whole batch is void;
    everything else a share of all completions, void ones included: `lethe/fails/<gate>` those
    against which the gate has evidence, `lethe/false_accepts` those that allclose accepts and the
    contract does not.
    """
    verdicts = [best_verdict(ContractReward(shape), attempts) for attempts in batch]

    def share(holds: Callable[[Verdict], bool]) -> float:
        return _mean([float(v is not None and holds(v)) for v in verdicts])

    result = {f"lethe/reward/{name}": _reward(name, batch, shape) for name in REWARDS}
    result["lethe/accepted/contract"] = share(lambda v: v.passed)
    result["lethe/accepted/allclose"] = share(_allclose_accepts)
    result["lethe/false_accepts"] = share(lambda v: _allclose_accepts(v) and not v.passed)
    result["lethe/runs_kernel"] = share(lambda v: v.kernel == "triton")
    result["lethe/unloadable"] = share(lambda v: bool(v.fault))
    result["lethe/void"] = share(lambda v: v.errored)
    for gate in GATE_NAMES:
        failing = [float(v is not None and gate in v.failed_gates) for v in verdicts]
        result[f"lethe/fails/{gate}"] = _mean(failing)
    return result


def columns(batch: Sequence[Attempts], shape: RewardShape) -> dict[str, list[str]]:
    """Columns of the table of completions, by name; texts only, so that any table can hold them."""
    verdicts = [best_verdict(ContractReward(shape), attempts) for attempts in batch]
    return {
        "task": [str(v.task["id"]) if v else "" for v in verdicts],
        "status": [_status(v) for v in verdicts],
        "rejected_by": [" ".join(v.rejected_by) if v else "" for v in verdicts],
        "reason": [_reason(v) if v else "" for v in verdicts],
        "allclose": [v.allclose.status.value if v and v.allclose else "" for v in verdicts],
    }


def _allclose_accepts(verdict: Verdict) -> bool:
    finding = verdict.allclose
    return not verdict.errored and finding is not None and finding.status is Status.PASS


def _reward(name: str, batch: Sequence[Attempts], shape: RewardShape) -> float:
    reward = REWARDS[name](shape)
    values = [best_reward(reward, attempts) for attempts in batch]
    return _mean([value for value in values if value is not None])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _status(verdict: Verdict | None) -> str:
    if verdict is None:
        return "no attempt"
    if verdict.errored:
        return "void"
    return "accepted" if verdict.passed else "rejected"


def _reason(verdict: Verdict) -> str:
    wrong = (f.reason for f in verdict.findings if f.status in (Status.FAIL, Status.ERROR))
    return next(wrong, "")[:REASON_CHARACTERS]
