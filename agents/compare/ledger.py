"""The ledger: what was written at which step of which run, and what both graders said of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...gates.verdict import Status, Verdict
from ...reward.rewards import AllcloseReward, ContractReward, speedup
from ...service.jobs import Job, Verifier
from ...tasks.model import Task
from .student import Completion, Student

NO_SOURCE = "no source"
"""Stands beside the gates for a completion without code in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One source text for one task, in the eyes of both graders."""

    task: str
    op_class: str
    source: str
    contract_reward: float | None
    """`None`, as the other reward, if the harness broke."""
    allclose_reward: float | None
    contract_accepts: bool = False
    allclose_accepts: bool = False
    rejected_by: tuple[str, ...] = ()
    """Gates and channels."""
    speedup: float | None = None
    """Over eager PyTorch, modelled or measured."""

    @property
    def void(self) -> bool:
        """Whether the harness broke."""
        return self.contract_reward is None

    @property
    def digest(self) -> str:
        """Names the candidate in the tables."""
        return hashlib.sha256(f"{self.task}\0{self.source}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One completion."""

    policy: str
    """`allclose` or `contract`, by the reward it is trained on, or `untrained`."""
    step: int | None
    """Of training; `None` for the samples taken afterwards."""
    completion: str
    """What was written, word for word."""
    candidate: Candidate


class Ledger:
    """Grades what a student writes, each text once, and keeps a row for each completion."""

    def __init__(
        self,
        verifier: Verifier,
        student: Student,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.rows: list[Row] = []
        self._verifier = verifier
        self._student = student
        self._progress = progress
        self._contract, self._allclose = ContractReward(), AllcloseReward()
        self._known: dict[Job, Candidate] = {}
        self._last: tuple[object, list[Candidate]] | None = None

    def record(
        self,
        policy: str,
        step: int | None,
        tasks: Sequence[Task],
        completions: Sequence[Completion],
    ) -> list[Candidate]:
        """Grade a batch; asked for the same batch again, only repeat the answer.

        Args:
            policy: who wrote it.
            step: when.
            tasks: what each completion is an answer to.
            completions: what was written.
        """
        batch = (policy, step, list(tasks), list(completions))
        if self._last is not None and self._last[0] == batch:
            return self._last[1]
        pairs = zip(tasks, completions, strict=True)
        jobs = [(task, self._student.source(task, text)) for task, text in pairs]
        candidates = self._graded(jobs)
        self.rows += [
            Row(policy=policy, step=step, completion=_text(text), candidate=candidate)
            for text, candidate in zip(completions, candidates, strict=True)
        ]
        self._last = (batch, candidates)
        return candidates

    def _graded(self, texts: Sequence[tuple[Task, str | None]]) -> list[Candidate]:
        jobs = [None if source is None else Job(task, source) for task, source in texts]
        new = list(dict.fromkeys(job for job in jobs if job is not None and job not in self._known))
        verdicts = self._verifier.grade_many(new, self._progress) if new else []
        graded = {
            job: self._candidate(job.task, verdict)
            for job, verdict in zip(new, verdicts, strict=True)
        }
        self._known.update({job: c for job, c in graded.items() if not c.void})
        graded.update(self._known)
        return [
            _nothing(task) if job is None else graded[job]
            for (task, _), job in zip(texts, jobs, strict=True)
        ]

    def _candidate(self, task: Task, verdict: Verdict) -> Candidate:
        allclose = verdict.allclose
        return Candidate(
            task=task.id,
            op_class=task.op_class,
            source=verdict.source,
            contract_reward=self._contract(verdict),
            allclose_reward=self._allclose(verdict),
            contract_accepts=verdict.passed,
            allclose_accepts=allclose is not None and allclose.status is Status.PASS,
            rejected_by=verdict.rejected_by,
            speedup=speedup(verdict),
        )


def _text(completion: Completion) -> str:
    if isinstance(completion, str):
        return completion
    return "\n\n".join(str(message.get("content") or "") for message in completion)


def _nothing(task: Task) -> Candidate:
    return Candidate(
        task=task.id,
        op_class=task.op_class,
        source="",
        contract_reward=0.0,
        allclose_reward=0.0,
        rejected_by=(NO_SOURCE,),
    )
