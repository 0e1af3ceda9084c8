"""Stages: in which order to ask, if the first failure ends the asking.

A policy in training mostly writes wrong kernels, and most of them fail at once, so a verdict can
be had for a fraction of its cost: first the values and the placement of outputs at the base shape
in float32, then the rest at the base shape, which needs no further compile, then everything else.
The ahead-of-time compiles for RES-02 come last of all. Within a stage probes stay shuffled, so a
candidate cannot tell which gate is asking.

A candidate is dropped only for a failure that further probes cannot mend, so it passes in stages
if and only if it passes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..tasks.model import Task
from ..tasks.probe import Probe
from . import battery, hardware, kernelbench_rule, placement, values
from .channels import channels, muted_probe
from .results import Results, instantiate
from .verdict import FATAL_CHANNELS, Status, Verdict, not_asked

Stage = tuple[Probe, ...]


def divide(task: Task, probes: Sequence[Probe], seed: int) -> tuple[Stage, ...]:
    """Probes by stage, the decisive cheap ones first.

    The first stage makes KernelBench's trials and the muted call too, so that every verdict says
    in full what an allclose grader thinks and whether kernels do the work.

    Args:
        task: the task.
        probes: everything that is to be asked.
        seed: under which `probes` were planned.
    """
    base = dict(task.family.base)
    planned = [*values.plan(task), *placement.plan(task), *kernelbench_rule.plan(task)]
    decisive = {probe for probe in instantiate(task, planned, seed) if probe.sizes == base}
    decisive.add(muted_probe(task, seed))
    first = tuple(probe for probe in probes if probe in decisive)
    second = tuple(p for p in probes if p not in decisive and _costs_no_compile(task, p))
    asked = {*first, *second}
    third = tuple(probe for probe in probes if probe not in asked)
    return tuple(stage for stage in (first, second, third) if stage)


def _costs_no_compile(task: Task, probe: Probe) -> bool:
    alike = probe.sizes == task.family.base and probe.layout == "contiguous"
    return alike and probe.dtype == task.working_dtype and not probe.gradients


def scouts(task: Task, probes: Sequence[Probe]) -> tuple[Probe, ...]:
    """The first probe of each kind of call: a candidate that can run somewhere answers one of them.

    Kinds are the native and the long shape, the base, the first and the last variation of each
    size, and at the base every dtype and every layout.

    Args:
        task: the task.
        probes: everything that is to be asked.
    """
    base, long = dict(task.family.base), dict(task.family.long)
    ends = [{**base, name: each} for name, v in task.family.vary.items() for each in v[:1] + v[-1:]]
    found: dict[str, Probe] = {}
    for probe in probes:
        if probe.mute or probe.timed or probe.gradients:
            continue
        if probe.sizes in (base, long, {}, *ends):
            kind = f"{sorted(probe.sizes.items())} {probe.dtype} {probe.layout}"
            found.setdefault(kind, probe)
    return tuple(found.values())


def failure(results: Results) -> str:
    """The gate or the trace that settles the verdict, whatever else is asked; empty if none does.

    A failure settles it if it has evidence of its own: "no call returned anything" does not.
    """
    for name in channels(results):
        if name in FATAL_CHANNELS:
            return name
    for finding in battery.judge(results):
        if finding.status is Status.FAIL and finding.evidence:
            return finding.gate
    return ""


def curtail(verdict: Verdict, results: Results, probes: Sequence[Probe], reason: str) -> Verdict:
    """The verdict of a candidate that was dropped: gates not asked in full say so.

    Args:
        verdict: what the asked probes say.
        results: what was asked.
        probes: what would have been asked.
        reason: the failure that ended the asking.
    """
    findings = []
    for gate, finding in zip(battery.GATES, verdict.findings, strict=True):
        wanted = set(results.asked(gate.plan(results.task))) & set(probes)
        complete = wanted <= results.observations.keys() and gate is not hardware
        waived = gate.NAME in results.task.waived
        settled = finding.status in (Status.FAIL, Status.ERROR)
        known = complete or waived or settled
        findings.append(finding if known else not_asked(gate.NAME, reason))
    return replace(verdict, findings=tuple(findings))
