"""Whether the audit of a corpus whose truth is known says what is true."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .row import Outcome, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What has to become of a row of a synthetic corpus (`synthetic.Known`)."""

    stage: Stage
    passed: bool | None = None
    caught_by: frozenset[str] = frozenset()
    """Gates, channels or `fault`, each of which has to speak against the candidate."""

    def contradiction(self, outcome: Outcome) -> str:
        """How an outcome differs from it, in words; empty if it does not."""
        if outcome.stage is not self.stage:
            return f"{outcome.stage} instead of {self.stage}: {outcome.reason}"
        if outcome.passed is not self.passed:
            said, known = (_WORDS[passed] for passed in (outcome.passed, self.passed))
            return f"{said} instead of {known}: {outcome.reason}".rstrip(": ")
        silent = self.caught_by - {*outcome.failed_gates, *outcome.channels, *_fault(outcome)}
        return f"rejected, but not by {', '.join(sorted(silent))}" if silent else ""


_WORDS = {True: "accepted", False: "rejected", None: "not judged"}
_BROKEN = Truth(stage=Stage.SKIPPED)


def read_truths(corpus: Path) -> dict[str, Truth]:
    """The truth of each row that `synthetic.write_synthetic` wrote, by the id that a run gives it.

    Raises:
        ValueError: the file is not such a corpus.
        OSError: it cannot be read.
    """
    truths: dict[str, Truth] = {}
    for number, line in enumerate(corpus.read_text(encoding="utf-8").splitlines(), start=1):
        identity, truth = _truth(number, line)
        truths[f"{identity} (time 2)" if identity in truths else identity] = truth
    if all(truth is _BROKEN for truth in truths.values()):
        raise ValueError(f"no row of {corpus} says its truth; `lethe audit synthesize` writes some")
    return truths


def _truth(number: int, line: str) -> tuple[str, Truth]:
    try:
        row = json.loads(line)
    except ValueError:
        return f"row{number}", _BROKEN
    try:
        return row["id"], Truth(
            stage=Stage(row["stage"]),
            passed=row["passed"],
            caught_by=frozenset(row["caught_by"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"line {number} is not of a synthetic corpus: {error!r}") from error


def contradictions(truths: dict[str, Truth], outcomes: Iterable[Outcome]) -> Iterator[str]:
    """One sentence for each row that came out otherwise, is missing, or is not of the corpus."""
    missing = dict(truths)
    for outcome in outcomes:
        truth = missing.pop(outcome.id, None)
        if truth is None:
            yield f"{outcome.id}: not of this corpus"
        elif words := truth.contradiction(outcome):
            yield f"{outcome.id}: {words}"
    for identity in missing:
        yield f"{identity}: not there yet"


def _fault(outcome: Outcome) -> tuple[str, ...]:
    return ("fault",) if outcome.fault else ()
