"""CMP-01: the values are right.

Claim:   for every input the task admits, each output element is within the computed bound of
         the float64 truth, with the weights the constructor draws, with every constant weight
         perturbed, and with weights replaced after construction.
Catches: wrong formulas, dropped terms and biases, identity and constant outputs, cached answers,
         windows of magnitude that are mishandled, weights frozen at construction.
Misses:  what shows only at other shapes (CMP-03), in long reductions (ORD-01), in other dtypes
         (PRC-01) or on non-finite inputs (EXC-01).
"""

from __future__ import annotations

from ..tasks.model import Task
from ..tasks.probe import Probe
from . import configurations
from .comparison import askable, judge_probes, outcome_of
from .results import Results
from .verdict import Finding

NAME = "CMP-01"

FAMILIES = (
    "own",
    "normal",
    "log_uniform",
    "ties",
    "constant",
    "sparse",
    "zeros",
    "huge",
    "tiny",
    "subnormal",
)


def plan(task: Task) -> tuple[Probe, ...]:
    """Every family at the base shape, two draws of the common ones, the long and native shapes."""
    base, long = dict(task.family.base), dict(task.family.long)
    return (
        *(Probe(sizes=base, values=family) for family in FAMILIES),
        Probe(sizes=base, values="own", seed=1),
        Probe(sizes=base, values="normal", seed=1),
        Probe(sizes=base, values="normal", weights="noised"),
        Probe(sizes=base, values="normal", weights="replaced"),
        Probe(sizes=long, values="normal"),
        Probe(sizes={}, values="own"),
    )


def judge(results: Results) -> Finding:
    """Compare every output of every probe."""
    probes, reason = askable(results, plan(results.task))
    probes += configurations.judged(results)
    outcomes = [outcome_of(p, results.truths[p], results.observations[p]) for p in probes]
    return judge_probes(NAME, outcomes, reason, "every element within the bound")
