"""Episodes of an evaluation: many side by side, each taken to its end whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..gates.verdict import Verdict
from ..grading import broken
from ..service.jobs import Job, Verifier
from .candidates import Attempt
from .kernel_env import KernelEnv
from .policies import Failure, Policy, ask
from .report import status_of
from .samples import Sample

Report = Callable[[str, int], None]
"""Called with what is being done and how many samples have just been finished."""


class Episode:
    """One attempt on its way to a sample; keeps the best verdict."""

    def __init__(self, attempt: Attempt, max_turns: int) -> None:
        self.attempt = attempt
        self.over = False
        self._env = KernelEnv(attempt.task, max_turns=max_turns)
        self.observation, _ = self._env.reset()
        self._turns = 0
        self._best: Verdict | None = None
        self._rank: tuple[bool, bool, float] = (False, False, 0.0)
        self._failure: Failure | None = None

    def propose(self, answer: Any) -> Job | Verdict | None:
        """The job to grade, a verdict if there is nothing to grade, `None` if the policy failed."""
        if isinstance(answer, Failure):
            self._failure, self.over = answer, True
            return None
        return self._env.propose(answer)

    def conclude(self, verdict: Verdict) -> None:
        """Take a verdict in."""
        self.observation, _, self.over, _, info = self._env.conclude(verdict)
        self._turns += 1
        rank = (not verdict.errored, verdict.passed, float(info["verdict_reward"]))
        if self._best is None or rank > self._rank:
            self._best, self._rank = verdict, rank

    def sample(self) -> Sample:
        """What became of the attempt."""
        attempt, verdict, failure = self.attempt, self._best, self._failure
        if verdict is not None:
            status, reason = status_of(verdict), verdict.fault
            if verdict.errored:
                reason = verdict.findings[0].reason
        else:
            status, reason = "policy_error", "the policy was never asked"
        if failure is not None:
            status = status if status == "pass" else failure.status
            reason = failure.reason
        return Sample(
            task=attempt.task.id,
            op_class=attempt.task.op_class,
            task_digest=attempt.task.digest,
            number=attempt.number,
            source="" if verdict is None else verdict.source,
            status=status,
            reason=reason,
            turns=self._turns,
            origin=attempt.origin,
            verdict=verdict,
        )


def play(
    episodes: Sequence[Episode],
    policy: Policy | None,
    verifier: Verifier,
    act_seconds: float,
    report: Report,
) -> None:
    """Take every episode to its end, turn by turn; grades all candidates of a turn together."""
    while running := [episode for episode in episodes if not episode.over]:
        report("asking" if policy is not None else "grading", 0)
        if policy is None:
            answers = [episode.attempt.action for episode in running]
        else:
            answers = ask(policy, [episode.observation for episode in running], act_seconds)
        proposals = [(e, e.propose(answer)) for e, answer in zip(running, answers, strict=True)]
        jobs = [proposal for _, proposal in proposals if isinstance(proposal, Job)]
        graded = iter(_graded(verifier, jobs, report))
        for episode, proposal in proposals:
            if proposal is not None:
                episode.conclude(next(graded) if isinstance(proposal, Job) else proposal)
        report("grading", sum(episode.over for episode in running))


def _graded(verifier: Verifier, jobs: Sequence[Job], report: Report) -> list[Verdict]:
    if not jobs:
        return []
    try:
        verdicts = verifier.grade_many(
            jobs, lambda done, total: report(f"grading, {done} of {total} of this batch", 0)
        )
    except Exception as error:  # noqa: BLE001 - a verifier that breaks costs its batch, no more
        reason = f"the verifier broke: {type(error).__name__}: {error}"
        return [broken(job.task, job.source, reason) for job in jobs]
    if len(verdicts) != len(jobs):
        reason = f"the verifier gave {len(verdicts)} verdicts on {len(jobs)} jobs"
        return [broken(job.task, job.source, reason) for job in jobs]
    return verdicts
