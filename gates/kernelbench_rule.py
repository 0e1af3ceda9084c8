"""KernelBench's rule, replicated for comparison: what an `allclose` grader says.

Five trials on the reference's own inputs at one shape, one dtype, `torch.allclose` with equal
absolute and relative tolerance, shapes compared, nothing else. Facts: KernelBench `eval.py` at
commit 423217d (`run_and_check_correctness`, `get_tolerance_for_precision`): 1e-4 in float32 and
1e-2 in half types; the paper and version 0 used 1e-2 throughout.
"""

from __future__ import annotations

import math

import torch

from ..tasks.model import Task
from ..tasks.probe import Probe
from .comparison import evidence_of, fault_text
from .results import Results
from .verdict import Finding, failed, not_applicable, passed

NAME = "allclose"
TRIALS = 5
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
PAPER_TOLERANCE = 1e-2


def plan(task: Task) -> tuple[Probe, ...]:
    """Five draws of the task's own inputs at the base shape."""
    base = dict(task.family.base)
    return tuple(Probe(sizes=base, values="own", seed=seed) for seed in range(TRIALS))


def judge(results: Results, tolerance: float | None = None) -> Finding:
    """Accept if `torch.allclose` holds in every trial.

    Args:
        results: observations and truths; compared is the working-precision reference.
        tolerance: absolute and relative; `None` is KernelBench's own for the dtype.
    """
    worst = needed = 0.0
    wrong = ""
    asked = [p for p in results.asked(plan(results.task)) if p in results.observations]
    for probe in asked:
        truth, seen = results.truths[probe], results.observations[probe]
        if truth.error:
            return not_applicable(NAME, f"the reference fails: {truth.error}")
        if seen.fault is not None:
            return failed(NAME, fault_text(seen.fault), evidence=(evidence_of(probe),))
        if not truth.outputs or not seen.outputs:
            return failed(NAME, "nothing came back", evidence=(evidence_of(probe),))
        want, have = truth.outputs[0].working, seen.outputs[0].data
        if want.shape != have.shape:
            return failed(NAME, f"shape {tuple(have.shape)} instead of {tuple(want.shape)}")
        if want.dtype != have.dtype:
            return failed(NAME, f"dtype {have.dtype} instead of {want.dtype}")
        limit = TOLERANCE.get(want.dtype, 1e-4) if tolerance is None else tolerance
        worst = max(
            worst, float((want.double() - have.double()).abs().max()) if want.numel() else 0.0
        )
        needed = max(needed, needed_tolerance(want, have))
        if not wrong and not torch.allclose(want, have, atol=limit, rtol=limit):
            wrong = f"{probe.label}: differs by {worst:.2g}"
    if not asked:
        return not_applicable(NAME, "no trial was made")
    measured = {"largest_difference": worst, "needed_tolerance": needed}
    if wrong:
        return failed(NAME, wrong, **measured)
    return passed(NAME, f"{len(asked)} trials within tolerance", **measured)


def needed_tolerance(want: torch.Tensor, have: torch.Tensor) -> float:
    """The smallest absolute and relative tolerance at which `torch.allclose` accepts.

    Its condition |want − have| ≤ t + t·|have| solved for t, at the worst element; infinite where a
    NaN or an infinity is out of place.

    Args:
        want: the reference's output, any shape and dtype.
        have: the candidate's, of the same shape and dtype.
    """
    if want.numel() == 0:
        return 0.0
    want, have = want.double(), have.double()
    needed = torch.where(want == have, 0.0, (want - have).abs() / (1.0 + have.abs()))
    return float(needed.nan_to_num(nan=math.inf, posinf=math.inf).max())
