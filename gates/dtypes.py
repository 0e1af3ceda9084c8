"""PRC-01: every dtype is computed as accurately as that dtype allows.

Claim:   in float32, float16 and bfloat16 every element is within that dtype's own bound, and
         outputs have the dtype of the reference's outputs.
Catches: kernels right in float32 only, silent int8 or half round trips, TF32 where it was not
         declared, outputs in another dtype.
Misses:  accumulators in half types, which the half bound can hide at short lengths (PRC-02).

A candidate that refuses a dtype with a clear error before it launches anything is not charged
unless the task demands that dtype.
"""

from __future__ import annotations

from ..tasks.model import DTYPES, Task
from ..tasks.probe import Probe
from .comparison import Outcome, askable, evidence_of, judge_probes, outcome_of, refuses_dtype
from .results import Results
from .verdict import Finding

NAME = "PRC-01"


def plan(task: Task) -> tuple[Probe, ...]:
    """The task's own and normal inputs in each dtype at the base shape."""
    base = dict(task.family.base)
    return tuple(
        Probe(sizes=base, values=values, dtype=dtype)
        for dtype in DTYPES
        for values in ("own", "normal")
    )


def judge(results: Results) -> Finding:
    """Compare values and dtypes in each dtype that was not refused."""
    probes, reason = askable(results, plan(results.task))
    charged = [probe for probe in probes if not refused(results, probe)]
    if probes and not charged:
        reason = "the candidate refuses every dtype of this gate"
    outcomes = [_outcome(results, probe) for probe in charged]
    dtypes = ", ".join(dtype for dtype in DTYPES if any(p.dtype == dtype for p in charged))
    return judge_probes(NAME, outcomes, reason, f"{dtypes} each within its own bound")


def refused(results: Results, probe: Probe) -> bool:
    """Whether the candidate honestly refuses a dtype that the task does not demand."""
    fault = results.observations[probe].fault
    return fault is not None and probe.dtype not in results.task.dtypes and refuses_dtype(fault)


def _outcome(results: Results, probe: Probe) -> Outcome:
    truth, seen = results.truths[probe], results.observations[probe]
    wanted = {tensor.path: tensor.dtype for tensor in truth.outputs}
    for tensor in seen.outputs:
        dtype = wanted.get(tensor.path)
        if dtype is not None and tensor.data.dtype != dtype:
            note = f"dtype {short_name(tensor.data.dtype)} instead of {short_name(dtype)}"
            return Outcome(probe, float("inf"), evidence_of(probe, path=tensor.path, note=note))
    return outcome_of(probe, truth, seen)


def short_name(dtype: object) -> str:
    """`float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")
