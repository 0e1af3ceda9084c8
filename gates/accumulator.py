"""PRC-02: half inputs are summed in a float32 total.

Claim:   on float16 inputs whose half-precision running total stagnates (thousands of terms of
         one sign) or drifts (terms that cancel at random distances), every element is within
         the bound, which assumes a float32 total and one rounding at the store.
Catches: float16 and bfloat16 accumulators, in any order of summation.
Misses:  operations without a reduction, for which there is nothing to ask.
"""

from __future__ import annotations

from ..tasks.model import Task
from ..tasks.probe import Probe
from .comparison import askable, judge_probes, outcome_of
from .dtypes import refused
from .results import Results
from .summation import reason_without
from .verdict import Finding, not_applicable

NAME = "PRC-02"

FAMILIES = ("normal", "stagnating", "cancelling_last", "cancelling_inner", "cancelling_first")


def plan(task: Task) -> tuple[Probe, ...]:
    """Stagnating and drifting float16 inputs at the long shape, and drifting ones at the base."""
    base, long = dict(task.family.base), dict(task.family.long)
    return (
        *(Probe(sizes=long, values=family, dtype="float16") for family in FAMILIES),
        Probe(sizes=base, values="cancelling_last", dtype="float16"),
        Probe(sizes=base, values="cancelling_inner", dtype="float16"),
    )


def judge(results: Results) -> Finding:
    """Compare every output of every probe that reduces."""
    probes, reason = askable(results, plan(results.task))
    probes = [probe for probe in probes if results.truths[probe].reduction_terms > 1]
    if not probes:
        return not_applicable(NAME, reason_without(results, reason))
    charged = [probe for probe in probes if not refused(results, probe)]
    if not charged:
        return not_applicable(NAME, "the candidate refuses float16")
    outcomes = [outcome_of(p, results.truths[p], results.observations[p]) for p in charged]
    return judge_probes(NAME, outcomes, reason, "totals neither stagnate nor drift")
