"""What is asked of a verifier, and what every verifier offers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from ..gates.kernelbench_rule import Rule
from ..gates.verdict import Verdict
from ..tasks.model import Task

Progress = Callable[[int, int], None]
"""Called with the verdicts there are and the verdicts there will be."""


@dataclass(frozen=True)
class Job:
    """One candidate for one task."""

    task: Task
    source: str
    """Text that ought to define `ModelNew`; anything at all is allowed."""
    rule: Rule | None = None
    """If given, only KernelBench's rule is asked: the verdict is its `allclose` alone."""

    @cached_property
    def digest(self) -> str:
        """Content hash: equal for jobs that get equal verdicts from equal verifiers."""
        content = hashlib.sha256(self.task.digest.encode())
        content.update(self.source.encode(errors="surrogatepass"))
        if self.rule is not None:
            content.update(repr(self.rule).encode())
        return content.hexdigest()


class Verifier(Protocol):
    """Turns jobs into verdicts: a `Grader`, a `Pool` of them, or a `Client` of a broker."""

    def grade_many(self, jobs: Sequence[Job], progress: Progress | None = None) -> list[Verdict]:
        """One verdict per job, in the jobs' order.

        Never raises because of a candidate or of a task. What could not be judged, because the
        task is at fault or the harness broke, is a verdict whose findings are all `ERROR`.

        Args:
            jobs: what to judge; equal jobs may share one verification.
            progress: called in the caller's thread after each verdict.
        """

    def close(self) -> None:
        """End whatever processes belong to this verifier alone."""
