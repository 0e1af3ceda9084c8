"""Our verdict against the one that the corpus recorded."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from .evidence import NOTHING, first_evidence
from .population import Population, kind_of
from .row import Outcome, Recorded, Stage
from .tables import violates

IDS_SHOWN = 10
_WORDS: tuple[tuple[str, str], ...] = (
    (r"time.?out|timed out", "time-out"),
    (r"out of memory|out of resource|outofresources", "resources"),
    (r"compil|syntax|indentation|ptxas|mlir", "compilation"),
    (r"illegal memory|misaligned|device-side assert|cuda error|segmentation", "device fault"),
    (r"shape|size mismatch", "shape"),
    (r"mismatch|not close|allclose|tolerance|max.{0,12}diff|incorrect|not equal", "values"),
    (r"error|exception|traceback", "exception"),
)
"""What the source's words on a rejection are about; the first that is found counts."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows on which the two verdicts differ in the same way."""

    recorded: str
    kind: str
    """Our first evidence where we reject, the subject of the source's words where we accept."""
    rows: int
    ids: tuple[str, ...]
    """Some of them, to look at."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Recorded verdicts against ours."""

    both_accept: int
    only_recorded_accepts: int
    """Rows that the source accepted and the contract rejects."""
    only_we_accept: int
    """Rows that the source rejected and the contract accepts."""
    both_reject: int
    not_judged: dict[str, int]
    """Rows with a recorded verdict that did not get as far as ours, by stage."""
    differences: tuple[Difference, ...]

    @property
    def judged(self) -> int:
        """Rows with both verdicts."""
        return (
            self.both_accept + self.only_recorded_accepts + self.only_we_accept + self.both_reject
        )


def agreement(population: Population) -> Agreement | None:
    """Cross both verdicts; `None` where the corpus recorded none.

    Rows that the source had rejected belong here, if they were judged, though not to the
    denominator.
    """
    if not population.recorded:
        return None
    cells: dict[tuple[bool, bool], int] = defaultdict(int)
    not_judged: dict[str, int] = defaultdict(int)
    kinds: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for row in population.recorded:
        if row.stage is not Stage.GATED:
            not_judged[row.stage.value] += 1
            continue
        recorded, ours = row.recorded_verdict is Recorded.ACCEPTED, not violates(row)
        cells[recorded, ours] += 1
        if recorded != ours:
            kind = subject_of(row.recorded_reason) if ours else first_evidence(row)
            kinds[Recorded(row.recorded_verdict).value, kind].append(row)
    return Agreement(
        both_accept=cells[True, True],
        only_recorded_accepts=cells[True, False],
        only_we_accept=cells[False, True],
        both_reject=cells[False, False],
        not_judged=dict(sorted(not_judged.items())),
        differences=tuple(
            Difference(recorded, kind, len(rows), tuple(sorted(row.id for row in rows)[:IDS_SHOWN]))
            for (recorded, kind), rows in sorted(
                kinds.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1])
            )
        ),
    )


def subject_of(words: str) -> str:
    """What the source's words on a rejection are about."""
    for pattern, subject in _WORDS:
        if re.search(pattern, words, re.IGNORECASE):
            return subject
    return kind_of(words) or NOTHING
