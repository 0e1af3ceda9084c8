"""Every honest kernel passes, and every trick is rejected by the gate it names."""

from __future__ import annotations

import pytest

from lethe_env.env.feedback import feedback
from lethe_env.gates.verdict import Status
from lethe_env.kernels.controls import HONEST, RED_TEAM

from .env.secrets import assert_nothing_hidden


def by_task(controls):
    """One worker grades all candidates of a task, so that its truths are computed once."""
    return [
        pytest.param(control, id=control.name, marks=pytest.mark.xdist_group(control.task))
        for control in controls
    ]


@pytest.mark.parametrize("control", by_task(HONEST))
def test_an_honest_kernel_passes_every_applicable_gate(request, grader, control):
    if control.library and not request.config.getoption("--experts"):
        pytest.skip("takes minutes: pytest --experts, or lethe controls --experts")
    verdict = grader.grade(control.task, control.source())
    failures = {f.gate: f.reason for f in verdict.findings if f.status is Status.FAIL}
    assert (failures, verdict.fault, dict(verdict.channels)) == ({}, "", {})
    assert verdict.passed
    assert verdict.kernel == "triton"
    assert verdict.allclose.status is Status.PASS


@pytest.mark.parametrize("control", by_task(RED_TEAM))
def test_a_trick_is_rejected_by_the_gates_it_names(request, control, monkeypatch):
    """Large float32 products take the virtual GPU long to translate; the interpreter shows them."""
    slow = "RES-02" in control.caught_by or control.task.startswith("attention/")
    grader = request.getfixturevalue("interpreter" if slow else "grader")
    targets = ("sm_100",) if "RES-02" in control.caught_by else ()  # the rest need no compile
    monkeypatch.setattr(grader, "targets", targets)
    verdict = grader.grade(control.task, control.source())
    assert not verdict.errored
    seen = {*verdict.rejected_by, *verdict.channels, verdict.kernel}
    assert set(control.caught_by) <= seen, verdict.rejected_by
    assert_nothing_hidden(verdict)
    assert "the call went wrong" not in feedback(verdict), "a gate's note that has no words"


@pytest.mark.parametrize("name", ["relu", "softmax", "matmul"])
def test_the_interpreter_accepts_honest_kernels_too(interpreter, name):
    control = next(control for control in HONEST if control.name == name)
    verdict = interpreter.grade(control.task, control.source())
    assert verdict.failed_gates == ()
    assert verdict.passed


@pytest.mark.parametrize(
    "name", [c.name for c in RED_TEAM if c.needs_gpu and c.name != "tf32_by_default"]
)
def test_what_only_a_gpu_brings_out_passes_the_interpreter(interpreter, name):
    control = next(control for control in RED_TEAM if control.name == name)
    assert interpreter.grade(control.task, control.source()).passed


def test_the_controls_cover_what_they_have_to():
    assert len(HONEST) >= 12
    assert len({control.task.partition("/")[0] for control in HONEST}) >= 8
    named = {gate for control in RED_TEAM for gate in control.caught_by}
    gates = {
        *("CMP-01", "CMP-02", "CMP-03", "ORD-01", "ORD-02", "ORD-03"),
        *("PRC-01", "PRC-02", "EXC-01", "EXC-02", "RES-01", "RES-02"),
    }
    assert gates <= named
