"""RES-01: outputs are where and what they have to be.

Claim:   every output of every call lies on the device of the inputs and has the reference's
         shape and dtype.
Catches: silent moves to the host, broadcastable stand-ins of another shape, outputs in another
         dtype, missing or additional outputs.
Misses:  values.
"""

from __future__ import annotations

from ..tasks.model import Task
from ..tasks.observation import Observation
from ..tasks.probe import Probe
from .comparison import EVIDENCE_LIMIT, describe, evidence_of
from .dtypes import short_name
from .results import Results
from .truth import Truth
from .verdict import Evidence, Finding, failed, not_applicable, passed

NAME = "RES-01"


def plan(task: Task) -> tuple[Probe, ...]:
    """One call at the base shape; the gate looks at every call of the verdict."""
    return (Probe(sizes=dict(task.family.base), values="normal"),)


def judge(results: Results) -> Finding:
    """Look at the metadata of every output that came back."""
    wrong: list[Evidence] = []
    calls = 0
    for probe, seen in results.observations.items():
        truth = results.truths.get(probe)
        if truth is None or truth.error or seen.fault is not None:
            continue
        if probe.weights in ("replaced", "corrupted") and not seen.weights_matched:
            continue  # nothing was called
        calls += 1
        wrong += _misplaced(probe, truth, seen)
    if not calls:
        faults = (s.fault.message for s in results.observations.values() if s.fault is not None)
        first = next(faults, "")
        if first:
            return failed(NAME, f"no call returned anything: {first}", calls=0.0)
        return not_applicable(NAME, "the reference takes none of the inputs")
    if not wrong:
        return passed(
            NAME, f"{calls} calls: device, shape and dtype as the reference's", calls=calls
        )
    return failed(
        NAME,
        f"{len(wrong)} of {calls} calls, first {describe(wrong[0])}",
        score=1 - len(wrong) / calls,
        evidence=tuple(wrong[:EVIDENCE_LIMIT]),
        calls=float(calls),
    )


def _misplaced(probe: Probe, truth: Truth, seen: Observation) -> list[Evidence]:
    got = {tensor.path: tensor for tensor in seen.outputs}
    for wanted in truth.outputs:
        tensor = got.pop(wanted.path, None)
        if tensor is None:
            return [evidence_of(probe, path=wanted.path, note="missing")]
        if tensor.device != "device":
            return [evidence_of(probe, path=wanted.path, note="moved off the device of the inputs")]
        if tensor.data.shape != wanted.values.shape:
            note = f"shape {tuple(tensor.data.shape)} instead of {tuple(wanted.values.shape)}"
            return [evidence_of(probe, path=wanted.path, note=note)]
        if tensor.data.dtype != wanted.dtype:
            have, want = short_name(tensor.data.dtype), short_name(wanted.dtype)
            return [evidence_of(probe, path=wanted.path, note=f"dtype {have} instead of {want}")]
    if got:
        return [evidence_of(probe, path=min(got), note="the reference returns no such output")]
    return []
