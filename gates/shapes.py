"""CMP-03: the kernel holds for other shapes and other memory layouts.

Claim:   with batch, length and width each varied alone over 1, primes and the neighbours of
         powers of two, and with transposed, sliced and expanded inputs, every element stays
         within the bound.
Catches: one shape only, no-ops off the benchmark shape, missing tail masks, single-tile
         assumptions, ignored strides and offsets.
Misses:  interactions of two varied sizes; sizes beyond the family.
"""

from __future__ import annotations

from ..tasks.model import Task
from ..tasks.probe import Probe
from .comparison import askable, judge_probes, outcome_of
from .results import Results
from .verdict import Finding

NAME = "CMP-03"

LAYOUTS = ("transposed", "offset", "expanded")


def plan(task: Task) -> tuple[Probe, ...]:
    """Every variant of the family, and every layout at the base shape."""
    base = dict(task.family.base)
    return (
        *(Probe(sizes=sizes, values="normal") for sizes in task.family.variants()),
        *(Probe(sizes=base, values="normal", layout=layout) for layout in LAYOUTS),
    )


def judge(results: Results) -> Finding:
    """Compare every output of every variant."""
    probes, reason = askable(results, plan(results.task))
    outcomes = [outcome_of(p, results.truths[p], results.observations[p]) for p in probes]
    return judge_probes(NAME, outcomes, reason, "every shape and layout within the bound")
