"""The rows of one audit, and the way from all of them to the denominator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from .row import Outcome, Recorded, Stage

REASONS_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the waterfall."""

    name: str
    rows: int
    """Rows that are left after this step."""
    removed: int
    rule: str
    """What is removed, in one sentence."""
    reasons: tuple[tuple[str, int], ...] = ()
    """The most frequent kinds of removal with their counts."""


_STEPS: tuple[tuple[str, Stage | None, str], ...] = (
    (
        "usable rows",
        Stage.SKIPPED,
        "rows that miss a field, repeat an id, or are too large to be read as a kernel",
    ),
    (
        "accepted by the source",
        None,
        "rows that the source system itself had rejected, where it recorded a verdict",
    ),
    (
        "applicable",
        Stage.NOT_APPLICABLE,
        "rows whose reference does not run or offers nothing to perturb",
    ),
    (
        "not artifacts",
        Stage.ARTIFACT,
        "rows that fail for the toolchain's, a missing dependency's or missing hardware's sake",
    ),
    ("judged", Stage.ERROR, "rows at which the harness broke, which says nothing about them"),
)


class Population:
    """The outcomes of one audit.

    Holds a kilobyte or two of each: sentences, evidence and sources are for the sample alone.
    """

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self._known: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        self.outcomes: Sequence[Outcome] = tuple(map(self._lean, outcomes))

    @cached_property
    def denominator(self) -> tuple[Outcome, ...]:
        """Judged rows that the source accepted, or of which it said nothing."""
        return tuple(o for o in self.outcomes if accepted(o) and o.stage is Stage.GATED)

    @cached_property
    def recorded(self) -> tuple[Outcome, ...]:
        """Every row of which the source recorded a verdict."""
        return tuple(o for o in self.outcomes if o.recorded_verdict is not None)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Op classes of the denominator, the most frequent first."""
        counts = Counter(outcome.op_class for outcome in self.denominator)
        return tuple(sorted(counts, key=lambda name: (-counts[name], name)))

    def waterfall(self) -> list[Step]:
        """Steps from all rows to the denominator, in the order in which rows are removed."""
        left: Sequence[Outcome] = self.outcomes
        steps = [Step("rows", len(left), 0, "everything in the corpus that the run reached")]
        for name, stage, rule in _STEPS:
            out = [o for o in left if (not accepted(o) if stage is None else o.stage is stage)]
            removed = {id(outcome) for outcome in out}
            left = [outcome for outcome in left if id(outcome) not in removed]
            said = (o.recorded_reason if stage is None else o.reason for o in out)
            steps.append(Step(name, len(left), len(out), rule, _most_frequent(said)))
        return steps

    def _lean(self, outcome: Outcome) -> Outcome:
        return replace(
            outcome,
            gates=self._shared(outcome.gates.items()),
            channels=self._shared((name, "") for name in outcome.channels),
            reasons={},
            evidence={},
            native_shapes=(),
            reference_digest="",
            candidate_digest="",
            reason=kind_of(outcome.reason),
            recorded_reason=outcome.recorded_reason[:200],
        )

    def _shared(self, items: Iterable[tuple[str, str]]) -> dict[str, str]:
        """One mapping for all rows that say the same."""
        key = tuple(items)
        return self._known.setdefault(key, dict(key))


def accepted(outcome: Outcome) -> bool:
    """Whether the source accepted the row, or said nothing of it."""
    rejected = outcome.recorded_verdict is Recorded.REJECTED
    return not rejected and outcome.stage is not Stage.NOT_ACCEPTED


def kind_of(reason: str) -> str:
    """What a sentence begins with, up to its first colon: the kind of what it reports."""
    return " ".join(reason.partition(":")[0].split())[:60]


def _most_frequent(reasons: Iterable[str]) -> tuple[tuple[str, int], ...]:
    counts = Counter(kind_of(reason) for reason in reasons if reason)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(ordered[:REASONS_SHOWN])
