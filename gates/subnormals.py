"""EXC-02: subnormal numbers are numbers.

Claim:   on subnormal inputs, and on inputs that give subnormal outputs, every element is within
         the bound without any allowance for the smallest normal number, zeros are where the
         reference has zeros, and no negative zero appears where the reference has a positive one.
Catches: flushing subnormals to zero, snapping them to the smallest normal, NaN for tiny inputs,
         −0 for +0.
Misses:  +0 for −0, which IEEE 754 leaves open for maximum and which honest kernels return; signs
         of zero after a reduction, which depend on the order of summation.
"""

from __future__ import annotations

import torch

from ..tasks.model import Task
from ..tasks.probe import Probe
from .comparison import Outcome, askable, evidence_of, judge_probes, outcome_of
from .results import Results
from .truth import Truth
from .verdict import Finding

NAME = "EXC-02"

FAMILIES = ("subnormal", "signed_zero", "zeros")


def plan(task: Task) -> tuple[Probe, ...]:
    """Subnormals and zeros of both signs at the base shape."""
    base = dict(task.family.base)
    return (
        *(Probe(sizes=base, values=family) for family in FAMILIES),
        Probe(sizes=base, values="subnormal", seed=1),
    )


def judge(results: Results) -> Finding:
    """Compare values without the allowance for the smallest normal, then the signs of zeros."""
    probes, reason = askable(results, plan(results.task))
    outcomes = [_outcome(results, probe) for probe in probes]
    return judge_probes(NAME, outcomes, reason, "subnormals kept, zeros where they belong")


def _outcome(results: Results, probe: Probe) -> Outcome:
    truth, seen = results.truths[probe], results.observations[probe]
    outcome = outcome_of(probe, truth, seen, subnormal=True)
    if outcome.evidence is not None or truth.reduction_terms > 1:
        return outcome
    return _signs(probe, truth, {tensor.path: tensor.data for tensor in seen.outputs}) or outcome


def _signs(probe: Probe, truth: Truth, got: dict[str, torch.Tensor]) -> Outcome | None:
    for tensor in truth.outputs:
        if not tensor.values.is_floating_point():
            continue
        have = got[tensor.path].double()
        positive_zero = (tensor.values == 0) & ~tensor.values.signbit()
        positive_zero &= (tensor.working == 0) & ~tensor.working.signbit()
        wrong = tensor.charged & positive_zero & (have == 0) & have.signbit()
        if wrong.any():
            index = tuple(int(i) for i in wrong.nonzero()[0])
            evidence = evidence_of(
                probe,
                path=tensor.path,
                index=index,
                elements=int(wrong.sum()),
                note="−0 where the reference has +0",
            )
            return Outcome(probe, float("inf"), evidence)
    return None
