"""ORD-02: the same call gives the same bytes, and leaves no trace.

Claim:   five calls with equal inputs, interleaved with calls on other data at the same
         addresses, return identical bytes; no output shares memory with an input, a parameter
         or an earlier output; no call changes its inputs.
Catches: unordered atomics that show, random noise, answers cached by pointer, shape or call
         count, one output buffer for all calls, inputs used as scratch space.
Misses:  nondeterminism that a device's own scheduler does not bring out.
"""

from __future__ import annotations

import torch

from ..tasks.model import Task
from ..tasks.observation import Observation, OutputTensor
from ..tasks.probe import Probe
from .comparison import EVIDENCE_LIMIT, askable, describe, evidence_of, fault_text
from .results import Results
from .truth import Truth
from .verdict import Evidence, Finding, failed, not_applicable, passed

NAME = "ORD-02"

REPEATS = 5


def plan(task: Task) -> tuple[Probe, ...]:
    """Five equal calls at the base shape."""
    base = dict(task.family.base)
    return tuple(Probe(sizes=base, values="normal", repeat=repeat) for repeat in range(REPEATS))


def judge(results: Results) -> Finding:
    """Compare bytes across repeats, then look for traces in every call of the verdict."""
    probes, reason = askable(results, plan(results.task))
    if not probes:
        return not_applicable(NAME, reason)
    wrong = [*_differing(results, probes), *_traces(results)]
    measured = {"repeats": float(len(probes)), "calls": float(len(results.observations))}
    if not wrong:
        return passed(
            NAME, f"{len(probes)} repeats byte-identical, no call left a trace", **measured
        )
    return failed(
        NAME,
        f"{len(wrong)} differences or traces, first {describe(wrong[0])}",
        evidence=tuple(wrong[:EVIDENCE_LIMIT]),
        **measured,
    )


def _differing(results: Results, probes: list[Probe]) -> list[Evidence]:
    first = results.observations[probes[0]]
    if first.fault is not None:
        return [evidence_of(probes[0], note=fault_text(first.fault))]
    wrong = []
    for probe in probes[1:]:
        seen = results.observations[probe]
        if seen.fault is not None:
            wrong.append(evidence_of(probe, note=fault_text(seen.fault)))
            continue
        for before, after in zip(first.outputs, seen.outputs, strict=False):
            if not same_bytes(before, after):
                wrong.append(_difference(probe, before, after))
                break
    return wrong


def same_bytes(first: OutputTensor, second: OutputTensor) -> bool:
    """Equality of bytes, so that a NaN equals itself and −0 differs from +0."""
    if first.data.shape != second.data.shape or first.data.dtype != second.data.dtype:
        return False
    one, two = (tensor.data.contiguous().reshape(-1) for tensor in (first, second))
    return torch.equal(one.view(torch.uint8), two.view(torch.uint8))


def _difference(probe: Probe, before: OutputTensor, after: OutputTensor) -> Evidence:
    if before.data.shape != after.data.shape or before.data.dtype != after.data.dtype:
        return evidence_of(probe, path=after.path, note="shape or dtype differs between repeats")
    one, two = before.data.double(), after.data.double()
    differ = (one != two) & ~(one.isnan() & two.isnan())
    if not differ.any():
        return evidence_of(
            probe, path=after.path, note="bytes differ between repeats, values do not"
        )
    index = tuple(int(i) for i in differ.nonzero()[0])
    return evidence_of(
        probe,
        path=after.path,
        index=index,
        got=two[index].item(),
        expected=one[index].item(),
        elements=int(differ.sum()),
        note=f"a repeat gave {two[index].item():.9g} after {one[index].item():.9g}",
    )


def _traces(results: Results) -> list[Evidence]:
    found = []
    for probe, seen in results.observations.items():
        truth = results.truths.get(probe)
        if truth is None or truth.error or probe.mute:
            continue
        found += _traces_of(probe, truth, seen)
    return found


def _traces_of(probe: Probe, truth: Truth, seen: Observation) -> list[Evidence]:
    for tensor in seen.outputs:
        shared = tensor.shares_storage_with
        if shared is None or (truth.output_is_view and shared != "previous output"):
            continue
        return [evidence_of(probe, path=tensor.path, note=f"shares memory with {shared}")]
    changed = sorted(set(seen.inputs_changed) - set(truth.changes_inputs))
    if changed:
        return [evidence_of(probe, path=f"input[{changed[0]}]", note="the call changed its input")]
    return []
