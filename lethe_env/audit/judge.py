"""The judge of rows: from one row to its outcome, on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ..cell.policy import SOURCE_CHARACTERS
from ..service.jobs import Job, Verifier
from . import outcomes
from .artifacts import artifact_before
from .preparer import Preparer
from .row import Outcome, Row, Stage


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one row."""

    outcome: Outcome
    verdict: str = ""
    """The full verdict's JSON text; empty unless the row was judged."""


class Judge:
    """Judges one row after another with a verifier; may be used by several threads."""

    def __init__(self, verifier: Verifier, preparer: Preparer) -> None:
        """Start nothing yet.

        Args:
            verifier: judges candidates; closed with the judge.
            preparer: looks at references; closed with the judge.
        """
        self._verifier = verifier
        self._preparer = preparer

    def close(self) -> None:
        """End whatever processes belong to it."""
        self._verifier.close()
        self._preparer.close()

    def judge(self, row: Row) -> Judged:
        """The outcome of a row; never raises because of the row."""
        started = time.perf_counter()
        if reason := _too_large(row):
            return Judged(outcomes.undecided(row, Stage.SKIPPED, reason))
        prepared = self._preparer.prepare(row.reference)
        if prepared.task is None:
            stage = Stage.NOT_APPLICABLE
            return Judged(outcomes.undecided(row, stage, prepared.problem, prepared))
        if reason := artifact_before(row):
            return Judged(outcomes.undecided(row, Stage.ARTIFACT, reason, prepared))
        task = replace(
            prepared.task,
            weights_by_shape=row.weights_by_shape,
            evaluation_mode=row.evaluation_mode,
        )
        (verdict,) = self._verifier.grade_many([Job(task, row.candidate)])
        outcome = outcomes.judged(row, prepared, verdict, time.perf_counter() - started)
        return Judged(outcome, verdict.dumps() if outcome.stage is Stage.GATED else "")


def _too_large(row: Row) -> str:
    for name, text in (("reference", row.reference), ("candidate", row.candidate)):
        if len(text) > SOURCE_CHARACTERS:
            return f"the {name} has more than {SOURCE_CHARACTERS} characters"
    return ""
