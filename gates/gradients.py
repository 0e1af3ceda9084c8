"""CMP-02: the gradients are right.

Claim:   for every input and parameter that takes part, the vector-Jacobian product with random
         cotangents is within the bound that the same rounding model gives for the reference's
         own backward pass.
Catches: a severed graph, a missing or wrong backward, gradients right in one dtype only,
         parameters that get none.
Misses:  second derivatives; gradients at shapes other than the base.
"""

from __future__ import annotations

from dataclasses import replace

from ..tasks.model import Task
from ..tasks.probe import Probe
from . import configurations
from .comparison import Outcome, askable, evidence_of, judge_probes, outcome_of
from .results import Results
from .verdict import Finding, not_applicable

NAME = "CMP-02"


def plan(task: Task) -> tuple[Probe, ...]:
    """Two draws at the base shape, one with noised weights, one for each other demanded dtype."""
    if not task.gradients:
        return ()
    base = dict(task.family.base)
    return (
        Probe(sizes=base, values="normal", gradients=True),
        Probe(sizes=base, values="normal", gradients=True, weights="noised", seed=1),
        *(
            Probe(sizes=base, values="normal", gradients=True, dtype=dtype)
            for dtype in task.dtypes
            if dtype != "float32"
        ),
    )


def judge(results: Results) -> Finding:
    """Compare every gradient; one that did not come back is wrong unless it is truly zero."""
    if not results.task.gradients:
        return not_applicable(NAME, "the task asks for no gradients")
    probes, reason = askable(results, plan(results.task))
    probes += [probe for probe in configurations.judged(results) if probe.gradients]
    outcomes = [_outcome(results, probe) for probe in probes]
    return judge_probes(NAME, outcomes, reason, "every vector-Jacobian product within the bound")


def _outcome(results: Results, probe: Probe) -> Outcome:
    truth, seen = results.truths[probe], results.observations[probe]
    if seen.fault is None:
        for path in seen.missing_gradients:
            wanted = next((t for t in truth.gradients if t.path == path), None)
            if wanted is None or not (wanted.values != 0).any():
                continue
            note = "no gradient came back: the graph is severed"
            return Outcome(probe, float("inf"), evidence_of(probe, path=path, note=note))
    answered = tuple(t for t in truth.gradients if t.path not in seen.missing_gradients)
    return outcome_of(probe, replace(truth, gradients=answered), seen, gradients=True)
