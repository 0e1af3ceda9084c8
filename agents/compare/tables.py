"""Tables: the rows of an experiment, and what is to be read off them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .ledger import Row
from .training import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Everything that was written and what was said of it."""

    rows: tuple[Row, ...]
    settings: Settings
    student: str
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What both graders say of a set of completions; those without a verdict do not count."""

    judged: int
    void: int
    """Completions that were not judged because the harness broke."""
    allclose: float
    """Share that allclose accepts."""
    contract: float
    """Share that the contract accepts."""
    fooled: float
    """Share that allclose accepts and the contract rejects."""
    mean_speedup: float | None
    """Geometric mean over what allclose accepts and has a time; `None` without any."""


def rates(rows: Iterable[Row]) -> Rates:
    """The rates of some rows; all zero where there are none."""
    rows = list(rows)
    judged = [row.candidate for row in rows if not row.candidate.void]
    count = max(1, len(judged))
    speedups = [c.speedup for c in judged if c.allclose_accepts and c.speedup]
    return Rates(
        judged=len(judged),
        void=len(rows) - len(judged),
        allclose=sum(c.allclose_accepts for c in judged) / count,
        contract=sum(c.contract_accepts for c in judged) / count,
        fooled=sum(c.allclose_accepts and not c.contract_accepts for c in judged) / count,
        mean_speedup=_geometric_mean(speedups),
    )


def samples(results: Results, policy: str, task: str | None = None) -> list[Row]:
    """What a policy wrote after its training, for all tasks or for one."""
    return [
        row
        for row in results.rows
        if row.policy == policy and row.step is None and task in (None, row.candidate.task)
    ]


def curve(results: Results, arm: str) -> list[Rates]:
    """The rates of one training run at each of its steps."""
    by_step: dict[int, list[Row]] = {}
    for row in results.rows:
        if row.policy == arm and row.step is not None:
            by_step.setdefault(row.step, []).append(row)
    return [rates(by_step[step]) for step in sorted(by_step)]


def broken_gates(rows: Sequence[Row]) -> dict[str, float]:
    """Gate or channel to the share of the completions accepted by allclose that it rejects."""
    accepted = [row.candidate for row in rows if row.candidate.allclose_accepts]
    counts = Counter(name for candidate in accepted for name in candidate.rejected_by)
    return {name: count / len(accepted) for name, count in sorted(counts.items())}


def completions_table(results: Results) -> dict[str, list[Any]]:
    """Columns of the table of completions, one row each."""
    rows = results.rows
    return {
        "policy": [row.policy for row in rows],
        "step": [row.step for row in rows],
        "task": [row.candidate.task for row in rows],
        "completion": [row.completion for row in rows],
        "candidate": [row.candidate.digest for row in rows],
        "allclose_accepts": [row.candidate.allclose_accepts for row in rows],
        "contract_accepts": [row.candidate.contract_accepts for row in rows],
        "void": [row.candidate.void for row in rows],
        "allclose_reward": [row.candidate.allclose_reward for row in rows],
        "contract_reward": [row.candidate.contract_reward for row in rows],
    }


def candidates_table(results: Results) -> dict[str, list[Any]]:
    """Columns of the table of candidates, each text once."""
    known = list({row.candidate.digest: row.candidate for row in results.rows}.values())
    return {
        "candidate": [c.digest for c in known],
        "task": [c.task for c in known],
        "op_class": [c.op_class for c in known],
        "allclose_accepts": [c.allclose_accepts for c in known],
        "contract_accepts": [c.contract_accepts for c in known],
        "rejected_by": [list(c.rejected_by) for c in known],
        "speedup": [c.speedup for c in known],
        "source": [c.source for c in known],
    }


def _geometric_mean(values: Sequence[float]) -> float | None:
    if not values:
        return None
    from statistics import geometric_mean

    return geometric_mean(values)
