"""What a device lacks, or broke at, is nobody's failure: findings that needed it are void."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..tasks.model import Task
from ..tasks.observation import Fault
from ..tasks.probe import Probe
from . import battery, kernelbench_rule
from .results import Results
from .verdict import Finding, Verdict, errored

KINDS = ("unsupported", "harness")
"""The kinds of fault that say so: the device lacks something, or it broke."""


def void(verdict: Verdict, results: Results) -> Verdict:
    """The verdict with `ERROR` for every gate that planned a probe the device could not run."""
    findings = []
    for gate, finding in zip(battery.GATES, verdict.findings, strict=True):
        fault = None if gate.NAME in results.task.waived else _fault(results, gate.plan)
        findings.append(_errored(finding, fault))
    allclose = verdict.allclose
    if allclose is not None:
        allclose = _errored(allclose, _fault(results, kernelbench_rule.plan))
    return replace(verdict, findings=tuple(findings), allclose=allclose)


def _fault(results: Results, plan: Callable[[Task], Iterable[Probe]]) -> Fault | None:
    for probe in results.asked(plan(results.task)):
        seen = results.observations.get(probe)
        if seen is not None and seen.fault is not None and seen.fault.kind in KINDS:
            return seen.fault
    return None


def _errored(finding: Finding, fault: Fault | None) -> Finding:
    if fault is None:
        return finding
    where = f" (line {fault.line})" if fault.line is not None else ""
    return errored(finding.gate, f"{fault.message}{where}")
