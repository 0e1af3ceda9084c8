"""Stages: nothing is left out for those who pass, and those who fail are asked less."""

from __future__ import annotations

import pytest

from lethe_env.gates import battery
from lethe_env.gates.stages import divide
from lethe_env.gates.verdict import Status
from lethe_env.grader import Grader
from lethe_env.grading import Grading
from lethe_env.kernels.controls import HONEST, RED_TEAM
from lethe_env.tasks.catalog import suite

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
        control = CONTROLS[name]
        monkeypatch.setattr(grader, "fail_fast", fail_fast)
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
