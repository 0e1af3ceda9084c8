"""From a row and its verdict to the outcome that is counted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..gates.kernelbench_rule import PAPER_TOLERANCE
from ..gates.verdict import FATAL_CHANNELS, Finding, Status, Verdict
from ..tasks.observation import PHASES
from .artifacts import artifact_after, without_deadlines
from .corpora import Unusable
from .preparation import Prepared
from .row import Outcome, Row, Stage


def skipped(item: Unusable) -> Outcome:
    """The outcome of a place without a candidate."""
    return Outcome(id=item.id, stage=Stage.SKIPPED, reason=item.reason)


def undecided(
    row: Row, stage: Stage, reason: str, prepared: Prepared | None = None, elapsed_s: float = 0.0
) -> Outcome:
    """The outcome of a row that did not get as far as a verdict."""
    return Outcome(stage=stage, reason=reason, elapsed_s=elapsed_s, **_known(row, prepared))


def judged(row: Row, prepared: Prepared, verdict: Verdict, elapsed_s: float) -> Outcome:
    """The outcome of a row with a verdict.

    A verdict with `ERROR` findings decides nothing, unless something else in it rejects the
    candidate: that evidence stands.
    """
    verdict = without_deadlines(verdict)
    if reason := artifact_after(row, verdict):
        return undecided(row, Stage.ARTIFACT, reason, prepared, elapsed_s)
    if verdict.errored and not verdict.rejected_by:
        broken = next(f for f in verdict.findings if f.status is Status.ERROR)
        at_fault = broken.reason.startswith(f"task {prepared.task and prepared.task.id}:")
        stage = Stage.NOT_APPLICABLE if at_fault else Stage.ERROR
        return undecided(row, stage, broken.reason, prepared, elapsed_s)
    fault = _fault(verdict)
    return Outcome(
        stage=Stage.GATED,
        reason=_reason(verdict, fault),
        gates={f.gate: _status(f) for f in verdict.findings},
        reasons={
            f.gate: f.reason for f in verdict.findings if f.status in (Status.FAIL, Status.ERROR)
        },
        evidence=_evidence(verdict),
        loosening=_loosening(verdict),
        channels=dict(verdict.channels),
        fault=fault,
        kernel="" if fault else verdict.kernel,
        passed=verdict.passed,
        floor_passed=verdict.floor_passed and not fault,
        allclose=_within(verdict.allclose, PAPER_TOLERANCE),
        allclose_hardened=None if verdict.allclose is None else _accepts(verdict.allclose),
        elapsed_s=elapsed_s,
        **_known(row, prepared),
    )


def _known(row: Row, prepared: Prepared | None) -> dict[str, Any]:
    """What is known of a row without a verdict."""
    fields: dict[str, Any] = {
        "id": row.id,
        "reference_digest": row.reference_digest,
        "candidate_digest": row.candidate_digest,
        "reference_bytes": _bytes(row.reference),
        "candidate_bytes": _bytes(row.candidate),
        "recorded_verdict": row.recorded_verdict,
        "recorded_reason": row.recorded_reason,
        "recorded_speedup": row.recorded_speedup,
    }
    if prepared is not None:
        fields |= {"op_class": prepared.op_class, "native_shapes": prepared.native_shapes}
    return fields


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _status(finding: Finding) -> str:
    return "not_asked" if finding.left_unasked else finding.status.value


def _fault(verdict: Verdict) -> str:
    """Why the candidate could not run at all: not loaded, or no call of it came back.

    KernelBench's trials are calls on the task's own inputs at its base shape, so a candidate of
    which those and every gate end in a fault runs nowhere.
    """
    near = verdict.allclose
    if verdict.fault or near is None or near.status is not Status.FAIL:
        return verdict.fault
    ran = any(f.status is Status.PASS and f.measured.get("calls", 1.0) for f in verdict.findings)
    return near.reason if near.reason.partition(":")[0] in PHASES and not ran else ""


def _reason(verdict: Verdict, fault: str) -> str:
    """The first thing that rejects it, in one sentence."""
    if fault:
        return fault
    failed = next((f.reason for f in verdict.findings if f.status is Status.FAIL), "")
    return failed or next(
        (text for name, text in verdict.channels.items() if name in FATAL_CHANNELS), ""
    )


def _evidence(verdict: Verdict) -> dict[str, Mapping[str, Any]]:
    """For each failed gate its first piece, strict JSON as in the verdict's own."""
    return {
        finding["gate"]: finding["evidence"][0]
        for finding in verdict.to_json()["findings"]
        if finding["status"] == Status.FAIL and finding["evidence"]
    }


def _loosening(verdict: Verdict) -> Mapping[str, float]:
    """For each gate that compares numbers, the factor on its bound at which it would pass."""
    factors = {}
    for finding in verdict.findings:
        ratio = finding.measured.get("worst_ratio")
        if ratio is not None:
            fails_otherwise = finding.status is Status.FAIL and ratio <= 1.0
            factors[finding.gate] = math.inf if fails_otherwise else ratio
    return factors


def _accepts(finding: Finding) -> bool | None:
    return {Status.PASS: True, Status.FAIL: False}.get(finding.status)


def _within(finding: Finding | None, tolerance: float) -> bool | None:
    """What the rule says at another tolerance."""
    if finding is None or _accepts(finding) is None:
        return None
    return finding.measured.get("needed_tolerance", math.inf) <= tolerance
