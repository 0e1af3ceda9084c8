"""ORD-01: a large reduction keeps its accuracy.

Claim:   on the longest member of the family every element is within the bound, which grows
         with the square root of the number of terms and with the sum of their magnitudes.
Catches: low-precision accumulators, dropped blocks of a long row, totals that restart.
Misses:  orders that are bad only on adversarial terms (ORD-03).
"""

from __future__ import annotations

from ..tasks.model import Task
from ..tasks.probe import Probe
from .comparison import askable, judge_probes, outcome_of
from .results import Results
from .verdict import Finding, not_applicable

NAME = "ORD-01"


def plan(task: Task) -> tuple[Probe, ...]:
    """Three draws at the long shape."""
    long = dict(task.family.long)
    return (
        Probe(sizes=long, values="normal"),
        Probe(sizes=long, values="normal", seed=1),
        Probe(sizes=long, values="log_uniform"),
    )


def judge(results: Results) -> Finding:
    """Compare every output; without a reduction there is nothing to ask."""
    probes, reason = askable(results, plan(results.task))
    probes = [probe for probe in probes if results.truths[probe].reduction_terms > 1]
    if not probes:
        return not_applicable(NAME, reason_without(results, reason))
    outcomes = [outcome_of(p, results.truths[p], results.observations[p]) for p in probes]
    terms = max(results.truths[probe].reduction_terms for probe in probes)
    return judge_probes(NAME, outcomes, reason, f"{terms} terms summed within the bound")


def reason_without(results: Results, reason: str) -> str:
    """Why a gate about reductions has nothing to ask."""
    reduces = any(truth.reduction_terms > 1 for truth in results.truths.values())
    return reason if reduces else "the operation has no reduction"
