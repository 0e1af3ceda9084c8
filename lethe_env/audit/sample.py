"""The sample that a person looks at: stratified, seeded, and chosen while rows stream by.

A stratum is an op class together with the first evidence against a row (`none` for accepted rows).
Within a stratum rows are ranked by a hash of the seed and their id, so the choice depends on the
set of rows alone, not on their order, and a run that continues keeps the same ones.
"""

from __future__ import annotations

import hashlib
from bisect import insort
from collections import Counter
from dataclasses import dataclass

from .evidence import first_evidence
from .row import Outcome, Recorded, Stage

PER_STRATUM = 3
"""Rows kept of each stratum while a run goes on."""
SAMPLE_SIZE = 40
"""Rows that the report shows: about one hour of a person's time."""

Stratum = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Sampled:
    """One row for a person to judge."""

    outcome: Outcome
    stratum: Stratum
    stratum_rows: int
    """Rows of the whole run that it stands for, together with its sampled neighbours."""


class Strata:
    """The rows of each stratum that would be shown if the run ended now."""

    def __init__(self, seed: int = 0, per_stratum: int = PER_STRATUM) -> None:
        self._seed = seed
        self._per_stratum = per_stratum
        self._kept: dict[Stratum, list[tuple[str, str, Outcome]]] = {}
        self._rows: Counter[Stratum] = Counter()

    def offer(self, outcome: Outcome) -> Outcome | None:
        """Take one outcome into account.

        Returns:
            The outcome that has no place in the sample: the offered one, or one that loses its
            place to it; `None` if there was room.
        """
        if outcome.stage is not Stage.GATED or outcome.recorded_verdict is Recorded.REJECTED:
            return outcome
        stratum = (outcome.op_class, first_evidence(outcome))
        self._rows[stratum] += 1
        kept = self._kept.setdefault(stratum, [])
        insort(kept, (self._rank(outcome), outcome.id, outcome), key=lambda entry: entry[:2])
        return kept.pop()[2] if len(kept) > self._per_stratum else None

    def sample(self, size: int = SAMPLE_SIZE) -> list[Sampled]:
        """The rows to show: one of each stratum, the largest first, then a second one, and so on.

        They are returned stratum by stratum.
        """
        turns = [
            (place, -self._rows[stratum], stratum, outcome)
            for stratum, kept in self._kept.items()
            for place, (_, _, outcome) in enumerate(kept)
        ]
        turns.sort(key=lambda turn: turn[:3])
        chosen = sorted(turns[:size], key=lambda turn: (turn[2], turn[0]))
        return [Sampled(row, stratum, -rows) for _, rows, stratum, row in chosen]

    def _rank(self, outcome: Outcome) -> str:
        return hashlib.sha256(f"{self._seed}\n{outcome.id}".encode(errors="replace")).hexdigest()
