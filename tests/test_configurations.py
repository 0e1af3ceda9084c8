"""Every autotune configuration is graded, end to end on the virtual GPU."""

from __future__ import annotations

import pytest

from lethe_env.grader import Grader
from lethe_env.tasks.model import ShapeFamily, Task

from .doubling import DOUBLE

SOURCE = DOUBLE.replace("n = 64", "n = 512")
CANDIDATE = """
import torch, triton, triton.language as tl

@triton.autotune(
    configs=[triton.Config({{"BLOCK": 64, "TAG": tag}}, num_warps=2) for tag in range({count})],
    key=["n"],
)
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr, TAG: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) * 2
    if TAG == {wrong}:
        value += 0.5
    tl.store(out + i, value, mask=i < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        double[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
        return out
"""


@pytest.fixture(scope="module")
def task() -> Task:
    family = ShapeFamily(base={"n": 137}, vary={"n": (1,)}, long={"n": 299})
    return Task(id="test/tuned", source=SOURCE, op_class="elementwise", family=family)


@pytest.fixture(scope="module")
def tuned():
    with Grader(device="vgpu", targets=(), cache=None) as grader:
        yield grader


@pytest.mark.parametrize("wrong", [11, 4])
def test_one_wrong_configuration_of_twelve_is_named(tuned, task, wrong):
    verdict = tuned.grade(task, CANDIDATE.format(count=12, wrong=wrong))
    finding = verdict.finding("CMP-01")
    assert verdict.rejected_by and "CMP-01" in verdict.failed_gates
    named = {evidence.configuration for evidence in finding.evidence}
    assert named == {f"double with BLOCK=64, TAG={wrong}, num_warps=2, num_stages=3"}
    assert f"TAG={wrong}" in finding.reason


def test_twelve_right_ones_pass_and_what_is_left_out_is_said(tuned, task):
    verdict = tuned.grade(task, CANDIDATE.format(count=12, wrong=-1))
    assert verdict.failed_gates == () and "autotune" not in verdict.notes
    assert verdict.speed.launches == 1
    many = tuned.grade(task, CANDIDATE.format(count=34, wrong=33))
    assert many.failed_gates == ()
    assert "2 configurations are beyond the budget of 32" in many.notes["autotune"]
    assert "TAG=33" in many.notes["autotune"]
