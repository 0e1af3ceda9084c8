"""ORD-03: terms chosen so that a bad order or a naive formula shows.

Claim:   with a large mean and a small variance, with alternating large magnitudes, and with
         terms that cancel at random distances, every element is within the bound. The bound
         admits every order of summation and every backward-stable formula.
Catches: single-pass E[x²] − E[x]², unshifted exponentials, totals kept in a half type.
Misses:  a formula that is unstable only where none of these families goes.
"""

from __future__ import annotations

from ..tasks.model import Task
from ..tasks.probe import Probe
from .comparison import askable, judge_probes, outcome_of
from .results import Results
from .summation import reason_without
from .verdict import Finding, not_applicable

NAME = "ORD-03"

FAMILIES = ("offset", "alternating", "cancelling_last", "cancelling_inner", "cancelling_first")


def plan(task: Task) -> tuple[Probe, ...]:
    """Every adversarial family at the long shape."""
    long = dict(task.family.long)
    return tuple(Probe(sizes=long, values=family) for family in FAMILIES)


def judge(results: Results) -> Finding:
    """Compare every output; without a reduction there is nothing to ask."""
    probes, reason = askable(results, plan(results.task))
    probes = [probe for probe in probes if results.truths[probe].reduction_terms > 1]
    if not probes:
        return not_applicable(NAME, reason_without(results, reason))
    outcomes = [outcome_of(p, results.truths[p], results.observations[p]) for p in probes]
    return judge_probes(NAME, outcomes, reason, "no order-dependent loss beyond the bound")
