"""EXC-01: NaN and infinities go where the reference sends them.

Claim:   with NaN, +Inf and −Inf at random places, at the first, the last and tile edges, over
         whole rows, and in parameters, the outputs are NaN, +Inf and −Inf exactly where the
         float64 truth and the working-precision reference agree that they are; the finite
         elements beside them are still right by value.
Catches: NaN swallowed by comparison and select or by min/max, infinities clamped, their sign
         flipped, masks that leak, rows poisoned by a neighbour's NaN.
Misses:  places where the two references disagree, which are not charged.
"""

from __future__ import annotations

from ..tasks.families import NON_FINITE
from ..tasks.model import Task
from ..tasks.probe import Probe
from .comparison import askable, judge_probes, outcome_of
from .results import Results
from .verdict import Finding

NAME = "EXC-01"


def plan(task: Task) -> tuple[Probe, ...]:
    """Every non-finite family at the base shape, two draws of NaN alone, and parameters."""
    base = dict(task.family.base)
    return (
        *(Probe(sizes=base, values=family) for family in NON_FINITE),
        Probe(sizes=base, values="nan", seed=1),
        Probe(sizes=base, values="normal", weights="corrupted"),
    )


def judge(results: Results) -> Finding:
    """Compare masks, signs and the finite rest."""
    probes, reason = askable(results, plan(results.task))
    outcomes = [outcome_of(p, results.truths[p], results.observations[p]) for p in probes]
    return judge_probes(
        NAME, outcomes, reason, "NaN and signed infinities exactly where they belong"
    )
