"""The sample: one candidate of an evaluation, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..gates.verdict import Status, Verdict

STATUSES = ("pass", "fail", "infra", "policy_error", "policy_timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One candidate for one task."""

    task: str
    """The task's id."""
    op_class: str
    task_digest: str
    number: int
    """Counts the samples of one task from 0."""
    source: str
    """Source text of the best turn, as it was judged; empty where there was none."""
    status: str
    """`pass`, `fail`, `infra` (the harness broke: no evidence, never counted against anyone),
    `policy_error` (the policy raised) or `policy_timeout` (it did not answer in time)."""
    reason: str = ""
    """Why there is no verdict, or what made the candidate impossible to judge."""
    turns: int = 1
    """Turns taken."""
    origin: str = ""
    """The file that it was read from."""
    verdict: Verdict | None = None

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"no status {self.status!r}; known: {', '.join(STATUSES)}")

    @property
    def judged(self) -> bool:
        """Whether it counts: everything but what the harness failed to judge."""
        return self.status != "infra"

    @property
    def passed(self) -> bool:
        """Whether the contract accepts it."""
        return self.status == "pass"

    @property
    def allclose_accepts(self) -> bool:
        """Whether KernelBench's rule accepts it."""
        verdict = self.verdict
        return (
            self.judged
            and verdict is not None
            and verdict.allclose is not None
            and verdict.allclose.status is Status.PASS
        )

    @property
    def false_accept(self) -> bool:
        """Accepted by KernelBench's rule, rejected by the contract."""
        return self.allclose_accepts and not self.passed

    @property
    def speedup(self) -> float | None:
        """Eager time over candidate time, `None` where nothing was timed."""
        speed = self.verdict.speed if self.verdict is not None else None
        return None if speed is None else speed.speedup

    @property
    def speed_kind(self) -> str | None:
        """`modelled`, `measured`, or `None` where nothing was timed."""
        speed = self.verdict.speed if self.verdict is not None else None
        return None if speed is None else speed.kind

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping from which `from_json` rebuilds an equal sample."""
        plain = {name: getattr(self, name) for name in _FIELDS}
        return {**plain, "verdict": None if self.verdict is None else self.verdict.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Sample:
        """Rebuild a sample.

        Raises:
            ValueError, KeyError: the mapping is no sample, or of another version.
        """
        verdict = data["verdict"]
        return cls(
            **{name: data[name] for name in _FIELDS},
            verdict=None if verdict is None else Verdict.from_json(verdict),
        )


_FIELDS = (
    "task",
    "op_class",
    "task_digest",
    "number",
    "source",
    "status",
    "reason",
    "turns",
    "origin",
)
