"""What says nothing about a candidate, and what does although it looks alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lethe_env.audit.artifacts import artifact_after, artifact_before, without_deadlines
from lethe_env.audit.row import Recorded, Row
from lethe_env.gates.verdict import Evidence, Verdict, errored, failed, passed

HONEST = "import torch\nimport triton\nclass ModelNew(torch.nn.Module): ...\n"


def row(candidate=HONEST, recorded=None):
    return Row(id="1", reference="r", candidate=candidate, recorded_verdict=recorded)


@pytest.mark.parametrize(
    ("candidate", "kind"),
    [
        (HONEST, ""),
        ("__global__ void f(float *x) {}", "CUDA C++"),
        ("#include <torch/extension.h>\nint x;", "CUDA C++"),
        ("this is prose, no code", ""),
        ("from torch.utils.cpp_extension import load_inline\n" + HONEST, "missing hardware"),
        ("import torch.utils.cpp_extension as c\n" + HONEST, "missing hardware"),
        (HONEST + "x = torch.utils.cpp_extension.load_inline('a', '')", "missing hardware"),
        ("from numba import cuda\n" + HONEST, "missing hardware"),
        ("import nobody_has_this.inner\n" + HONEST, "missing dependency: nobody_has_this"),
        ("try:\n    import nobody_has_this\nexcept ImportError:\n    pass\n" + HONEST, ""),
        ("# import nobody_has_this, load_inline, #include <x>\n" + HONEST, ""),
        ("import jaxlike_but_not_jax\n" + HONEST, "missing dependency"),
    ],
)
def test_the_text_alone_may_say_that_it_cannot_be_tried(candidate, kind):
    found = artifact_before(row(candidate))
    assert found.startswith(kind) if kind else found == ""


UNSUPPORTED = "unsupported by the virtual GPU: the opcode tcgen05.mma (line 3)"
OTHER_NAME = (
    "forward: AttributeError: module 'triton.language.math' has no attribute 'tanh' (line 9)"
)
CRASH = "forward: RuntimeError: PassManager::run failed (line 4)"
OWN = "forward: CompilationError: arange's arguments must be a power of 2 (line 7)"
RIGHT = passed("ORD-01", "right", calls=1.0)


def verdict(*findings):
    return Verdict(task={}, source="", findings=findings)


@pytest.mark.parametrize(
    ("findings", "recorded", "kind"),
    [
        (
            [errored("CMP-01", UNSUPPORTED), errored("ORD-01", UNSUPPORTED)],
            None,
            "missing hardware",
        ),
        ([errored("CMP-01", UNSUPPORTED), RIGHT], None, "missing hardware"),
        ([errored("CMP-01", UNSUPPORTED), failed("EXC-01", OWN), RIGHT], None, ""),
        ([errored("CMP-01", UNSUPPORTED), errored("EXC-01", "it broke"), RIGHT], None, ""),
        ([failed("CMP-01", OTHER_NAME)], None, "other version"),
        ([failed("CMP-01", OTHER_NAME)], Recorded.ACCEPTED, "other version"),
        ([failed("CMP-01", OTHER_NAME)], Recorded.REJECTED, ""),
        ([failed("CMP-01", CRASH)], Recorded.REJECTED, "compiler crash"),
        ([failed("CMP-01", OWN)], Recorded.ACCEPTED, ""),
        ([failed("CMP-01", CRASH), failed("ORD-01", OWN)], None, ""),
        ([failed("CMP-01", CRASH), passed("ORD-01", "right", calls=1.0)], None, ""),
        ([errored("CMP-01", "the harness broke")], None, ""),
        ([passed("CMP-01", "right", calls=1.0)], None, ""),
    ],
)
def test_a_verdict_says_nothing_only_if_all_of_it_says_nothing(findings, recorded, kind):
    found = artifact_after(row(recorded=recorded), verdict(*findings))
    assert found.startswith(kind) if kind else found == ""


LATE = "forward: no answer within 30 seconds"


def evidence(*notes):
    return tuple(Evidence(probe={}, label="a call", note=note) for note in notes)


@pytest.mark.parametrize(
    ("findings", "device", "kind"),
    [
        ([failed("CMP-01", LATE, evidence=evidence(LATE, LATE)), RIGHT], "vgpu", "too slow here"),
        ([failed("CMP-01", LATE, evidence=evidence(LATE, OWN)), RIGHT], "vgpu", ""),
        ([failed("CMP-01", LATE, evidence=evidence(LATE)), failed("EXC-01", OWN)], "vgpu", ""),
        ([failed("CMP-01", LATE, evidence=evidence(LATE)), RIGHT], "cuda", ""),
    ],
)
def test_a_missed_deadline_says_nothing_where_a_cpu_runs_the_kernel(findings, device, kind):
    late = replace(verdict(*findings), environment={"device": device})
    found = artifact_after(row(), without_deadlines(late))
    assert found.startswith(kind) if kind else found == ""


def test_a_gate_that_was_only_late_is_not_counted_as_failed():
    late = verdict(failed("CMP-01", LATE, evidence=evidence(LATE)), failed("EXC-01", OWN))
    assert without_deadlines(late).failed_gates == ("EXC-01",)
