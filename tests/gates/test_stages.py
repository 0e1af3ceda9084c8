"""Stages: nothing is left out for those who pass, and those who fail are asked less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lethe_env.gates import battery
from lethe_env.gates.stages import divide, scouts
from lethe_env.gates.verdict import Status
from lethe_env.grader import Grader
from lethe_env.grading import Grading
from lethe_env.kernels.controls import HONEST, RED_TEAM
from lethe_env.tasks.catalog import suite
from lethe_env.tasks.model import ShapeFamily

CONTROLS = {control.name: control for control in (*HONEST, *RED_TEAM)}
CHEAP = ("relu", "unwritten_output", "nan_swallow_relu", "subnormal_flush", "fp32_only_correct")


class Counting(Grading):
    """Counts the probes made."""

    probes = 0

    def observe(self, probes):
        Counting.probes += len(probes)
        return super().observe(probes)


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr("lethe_env.grader.Grading", Counting)

    def grade(grader: Grader, name: str, *, fail_fast: bool):
        Counting.probes = 0
        monkeypatch.setattr(grader, "fail_fast", fail_fast)
        if name not in CONTROLS:
            return grader.grade("elementwise/relu", name), Counting.probes
        control = CONTROLS[name]
        return grader.grade(control.task, control.source()), Counting.probes

    return grade


@pytest.mark.parametrize("task", list(suite().values())[::9], ids=lambda task: task.id)
def test_the_stages_hold_every_probe_once(task):
    probes = battery.plan(task, 3)
    stages = divide(task, probes, 3)
    divided = [probe for stage in stages for probe in stage]
    assert len(divided) == len(probes)
    assert set(divided) == set(probes)
    assert len(stages[0]) < len(probes) / 2


def test_scouts_go_to_every_kind_of_call():
    family = ShapeFamily(base={"rows": 5, "width": 37}, vary={"rows": (1, 2, 3)}, long={"rows": 99})
    task = replace(suite()["softmax/softmax"], family=family)
    found = scouts(task, battery.plan(task, 0))
    assert {probe.dtype for probe in found} == {"float32", "float16", "bfloat16"}
    assert {probe.layout for probe in found} == {"contiguous", "transposed", "offset", "expanded"}
    rows = {probe.sizes.get("rows") for probe in found}
    assert rows == {None, 1, 3, 5, 99}
    assert len(found) < 12


NOWHERE = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        raise RuntimeError("nobody defined BLOCK")
"""
SOMEWHERE = NOWHERE.replace(
    "raise", "if x.dtype == torch.bfloat16:\n            return x\n        raise"
)


@pytest.mark.parametrize(("source", "everything"), [(NOWHERE, False), (SOMEWHERE, True)])
def test_a_candidate_that_runs_nowhere_is_not_asked_everything(
    interpreter, counted, source, everything
):
    verdict, asked = counted(interpreter, source, fail_fast=False)
    assert not verdict.passed
    assert not verdict.errored
    assert "nobody defined BLOCK" in " ".join(finding.reason for finding in verdict.findings)
    assert (verdict.fault == "") == everything
    assert (asked > 40) == everything


@pytest.mark.parametrize("name", CHEAP)
def test_passing_does_not_depend_on_stages_and_failing_costs_less(interpreter, counted, name):
    whole, asked = counted(interpreter, name, fail_fast=False)
    staged, asked_in_stages = counted(interpreter, name, fail_fast=True)
    assert staged.passed == whole.passed
    assert staged.errored == whole.errored
    if whole.passed:
        assert asked_in_stages == asked
        assert staged.findings == whole.findings
        return
    assert asked_in_stages <= asked
    assert set(staged.rejected_by) <= set(whole.rejected_by)
    assert staged.rejected_by


def test_a_dropped_candidate_says_what_was_not_asked(interpreter, counted):
    whole, asked = counted(interpreter, "unwritten_output", fail_fast=False)
    verdict, asked_in_stages = counted(interpreter, "unwritten_output", fail_fast=True)
    assert asked_in_stages < asked / 2
    assert "CMP-01" in verdict.failed_gates
    for gate in ("CMP-03", "ORD-02", "EXC-01", "RES-02"):
        finding = verdict.finding(gate)
        assert finding.status is Status.NOT_APPLICABLE
        assert finding.reason.startswith("not asked: CMP-01")
    assert verdict.allclose == whole.allclose
    assert verdict.kernel == whole.kernel
