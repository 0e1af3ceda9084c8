"""Speed in verdicts, end to end on the virtual GPU."""

from __future__ import annotations

import pytest

from lethe_env.tasks.model import ShapeFamily, Task

SOURCE = """
import torch
n = 4096
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2)
def get_inputs():
    return [torch.randn(n)]
def get_init_inputs():
    return []
"""
HEAD = """
import torch, triton, triton.language as tl

@triton.jit
def fused(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) * 2
    tl.store(out + i, tl.where(value < 0, 0.0, value), mask=i < n)

def run(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    fused[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out

class ModelNew(torch.nn.Module):
    def forward(self, x):
"""
BYTES = 2 * 4 * 4096


@pytest.fixture(scope="module")
def task() -> Task:
    family = ShapeFamily(base={"n": 37}, vary={"n": (1,)}, long={"n": 99})
    return Task(id="test/speed", source=SOURCE, op_class="elementwise", family=family)


def test_a_fused_kernel_is_modelled_faster_and_always_alike(grader, task):
    kernel = grader.grade(task, HEAD + "        return run(x)")
    again = grader.grade(task, HEAD + "        return run(x)")
    assert kernel.speed == again.speed
    speed = kernel.speed
    assert (speed.kind, speed.target, speed.launches, speed.operations) == (
        "modelled",
        "A100",
        1,
        0,
    )
    assert speed.bytes == BYTES and 1.9 < speed.speedup < 2.1
    (work,) = speed.kernels
    assert (work.kernel, work.blocks, work.loaded_bytes) == ("fused", 32, BYTES / 2)
    assert work.instructions["memory"] > 0


def test_torch_operations_beside_the_kernel_are_paid_for(grader, task):
    verdict = grader.grade(task, HEAD + "        return run(x * 1.0) + 0.0")
    speed = verdict.speed
    assert (speed.launches, speed.operations, speed.bytes) == (1, 2, 3 * BYTES)
    assert speed.speedup < 0.7


def test_eager_torch_is_as_fast_as_itself(grader, task):
    verdict = grader.grade(task, HEAD + "        return torch.relu(x * 2)")
    assert verdict.speed.speedup == 1.0 and verdict.speed.launches == 0


def test_without_counts_the_verdict_says_why_there_is_no_speed(interpreter, task):
    verdict = interpreter.grade(task, HEAD + "        return torch.relu(x * 2)")
    assert verdict.speed is None
    assert verdict.notes["speed"] == "this device does not count what kernels do"
