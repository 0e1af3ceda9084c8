"""The result: what KernelBench's callers read, filled from a verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ..gates import kernelbench_rule
from ..gates.speed import Speed
from ..gates.verdict import Finding, Status, Verdict
from ..service.wire import verdict_to_json
from ..tasks.observation import PHASES

CHECKS = ("contract", "kernelbench")
JUDGED = "judged"
CANNOT_RUN_HERE = "cannot run here"
NOT_JUDGED = "not judged"
"""Values of `metadata["status"]`. What was not judged counts neither as right nor as wrong."""

MESSAGE_CHARACTERS = 200
"""KernelBench cuts runtime errors to so many characters."""


@dataclass(slots=True)
class KernelExecResult:
    """One evaluated kernel, with the fields and meanings of KernelBench's class of this name.

    `dict`, `json`, `model_dump`, `model_dump_json` and `model_copy` are those of pydantic, for
    callers that use them.
    """

    compiled: bool = False
    """Whether the source was loaded and defines `ModelNew`."""
    correctness: bool = False
    """The verdict of the check that was asked for."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """KernelBench's keys, and `status`, `check`, `contract`, `modelled_speed`."""
    runtime: float = -1.0
    """Mean time in milliseconds, measured on a GPU; -1 if none was."""
    runtime_stats: dict[str, Any] = field(default_factory=dict)
    ref_runtime: float = -1.0
    """The same of the reference, each torch operation a kernel of its own."""
    ref_runtime_stats: dict[str, Any] = field(default_factory=dict)

    def model_dump(self) -> dict[str, Any]:
        """A mapping of all fields."""
        return asdict(self)

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """The same as JSON text."""
        return json.dumps(self.model_dump(), indent=indent)

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> KernelExecResult:
        """A copy with some fields changed."""
        return replace(self, **dict(update or {}))

    def dict(self) -> dict[str, Any]:
        """`model_dump` by its older name."""
        return self.model_dump()

    def json(self) -> str:
        """`model_dump_json` by its older name."""
        return self.model_dump_json()

    @classmethod
    def model_validate(cls, data: Mapping[str, Any]) -> KernelExecResult:
        """Rebuild from `model_dump`; unknown keys are ignored."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})

    @property
    def judged(self) -> bool:
        """Whether `correctness` says anything about the kernel."""
        return self.metadata.get("status", JUDGED) == JUDGED


def unjudged(status: str, reason: str, *, check: str, metadata: Mapping[str, Any]) -> Any:
    """The result of a kernel that could not be judged, with the reason.

    Args:
        status: `CANNOT_RUN_HERE` or `NOT_JUDGED`.
        reason: one sentence.
        check: what was to be asked.
        metadata: further entries.
    """
    return KernelExecResult(
        metadata={**metadata, "status": status, "check": check, "error": reason}
    )


def result_of(verdict: Verdict, *, check: str, metadata: Mapping[str, Any]) -> KernelExecResult:
    """The result that a verdict amounts to, without times.

    Args:
        verdict: by the whole contract, or for the check `kernelbench` by its rule alone.
        check: one of `CHECKS`.
        metadata: further entries.
    """
    if check not in CHECKS:
        raise ValueError(f"no check {check!r}; known: {', '.join(CHECKS)}")
    if verdict.errored:
        reason = next(f.reason for f in verdict.findings if f.status is Status.ERROR)
        found = {**metadata, **_contract(verdict, check)}
        return unjudged(NOT_JUDGED, reason, check=check, metadata=found)
    found = dict(metadata)
    if check == "kernelbench" and verdict.allclose is not None:
        found |= trial_entries(verdict.allclose)
    if verdict.fault:
        found |= {"compilation_error": verdict.fault, "compilation_error_name": "LoadError"}
    elif check == "contract":
        found |= _contract_issue(verdict)
    return KernelExecResult(
        compiled=not verdict.fault,
        correctness=accepted(verdict, check),
        metadata={**found, "status": JUDGED, "check": check, **_contract(verdict, check)},
    )


def accepted(verdict: Verdict, check: str) -> bool:
    """What a check says of a verdict."""
    if check == "contract":
        return verdict.passed
    return verdict.allclose is not None and verdict.allclose.status is Status.PASS


def add_times(
    result: KernelExecResult, speed: Speed | None, excessive: float | None
) -> KernelExecResult:
    """The same with times, if it is correct: measured ones in their fields, modelled ones beside.

    Args:
        result: what was judged.
        speed: the verdict's.
        excessive: ratio above which `excessive_speedup` is noted; `None` leaves that out.
    """
    if speed is None or not result.correctness:
        return result
    if speed.kind != "measured":
        modelled = {
            "kind": speed.kind,
            "target": speed.target,
            "candidate_ms": speed.candidate_us / 1e3,
            "reference_ms": speed.eager_us / 1e3,
            "speedup": speed.speedup,
        }
        return result.model_copy(
            update={"metadata": {**result.metadata, "modelled_speed": modelled}}
        )
    metadata = dict(result.metadata)
    if excessive is not None and speed.speedup > excessive:
        metadata["excessive_speedup"] = True
    own, reference = _stats(speed.candidate_us, result), _stats(speed.eager_us, result)
    return result.model_copy(
        update={
            "metadata": metadata,
            "runtime": own["mean"],
            "runtime_stats": own,
            "ref_runtime": reference["mean"] if excessive is not None else -1.0,
            "ref_runtime_stats": reference if excessive is not None else {},
        }
    )


def _stats(time_us: float, result: KernelExecResult) -> dict[str, Any]:
    """KernelBench's statistics of one number, the slope over many calls: nothing to spread."""
    mean = float(f"{time_us / 1e3:.3g}")
    found = {"mean": mean, "std": 0.0, "min": mean, "max": mean, "num_trials": 1}
    return {**found, **{k: result.metadata[k] for k in ("hardware", "device")}}


def _contract(verdict: Verdict, check: str) -> dict[str, Any]:
    return {"contract": verdict_to_json(verdict)} if check == "contract" else {}


def trial_entries(finding: Finding) -> dict[str, Any]:
    """KernelBench's own metadata about its trials, from the finding of its rule."""
    measured = finding.measured
    if "passed_trials" not in measured:
        return {}
    found: dict[str, Any] = {}
    for kind in ("max", "avg"):
        keys = [key for key in measured if key.startswith(f"{kind}_difference_")]
        if keys:
            found[f"{kind}_difference"] = [f"{measured[key]:.6f}" for key in keys]
    if finding.status is Status.FAIL and not finding.reason.startswith(kernelbench_rule.MISMATCHES):
        name, _, text = finding.reason.partition(": ")
        return {**found, "runtime_error": _cut(text), "runtime_error_name": name}
    if finding.status is Status.FAIL:
        found["correctness_issue"] = finding.reason
        if finding.reason.startswith(kernelbench_rule.SHAPE_MISMATCH):
            return {**found, "correctness_issue_name": "correctness_issue"}
    done, all_of_them = int(measured["passed_trials"]), int(measured["trials"])
    return {**found, "correctness_trials": f"({done} / {all_of_them})"}


def _contract_issue(verdict: Verdict) -> dict[str, Any]:
    """The first gate or trace that rejects, as an exception if that is what it saw."""
    if verdict.passed or not verdict.rejected_by:
        return {}
    name = verdict.rejected_by[0]
    if name in verdict.channels:
        return {"correctness_issue": verdict.channels[name], "correctness_issue_name": name}
    finding = verdict.finding(name)
    note = finding.evidence[0].note if finding.evidence else ""
    phase, _, text = note.partition(": ")
    if phase in PHASES and text:
        return {"runtime_error": _cut(text), "runtime_error_name": text.partition(":")[0]}
    return {"correctness_issue": finding.reason, "correctness_issue_name": name}


def _cut(text: str) -> str:
    if len(text) <= MESSAGE_CHARACTERS:
        return text
    return f"{text[: MESSAGE_CHARACTERS - 3]}..."
