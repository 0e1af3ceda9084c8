"""A crash in native code is ours only if it comes again, and only while kernels run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lethe_env.cell import Limits
from lethe_env.gates.truth import Truth
from lethe_env.grading import Grading
from lethe_env.tasks.model import ShapeFamily, Task
from lethe_env.tasks.observation import Fault, Observation
from lethe_env.tasks.probe import Probe

SOURCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.randn(4)]
def get_init_inputs():
    return []
"""
CRASH = Observation(fault=Fault(kind="signal", phase="kernel", message="SIGSEGV"))
OUTSIDE = Observation(fault=Fault(kind="signal", phase="forward", message="SIGSEGV"))
FINE = Observation()


class FakeCell:
    """Answers calls from a script, launches muted or not."""

    fault = None
    containment = SimpleNamespace(not_enforced=())

    def __init__(self, unmuted, muted):
        self.unmuted, self.muted, self.alive = unmuted, muted, True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, request):
        seen = self.muted if request.mute else self.unmuted
        self.alive = seen.fault is None
        return seen

    def close(self):
        self.alive = False


def observed(cells):
    opened = iter(cells)
    workshop = SimpleNamespace(open=lambda source: next(opened))
    grader = SimpleNamespace(
        seed=0,
        call_seconds=1.0,
        limits=Limits(),
        workshop=lambda: workshop,
        report=lambda *_: None,
    )
    task = Task(id="t", source=SOURCE, family=ShapeFamily())
    grading, probe = Grading(grader, task, ""), Probe(values="normal")
    grading.truths[probe] = Truth()
    grading.observe([probe])
    return grading.observations[probe].fault


def test_a_crash_of_the_virtual_gpu_is_not_the_candidates():
    fault = observed([FakeCell(CRASH, FINE)] * 3)
    assert fault.kind == "harness" and "the virtual GPU broke" in fault.message


@pytest.mark.parametrize(
    ("first", "again", "muted"),
    [
        (OUTSIDE, OUTSIDE, FINE),
        (CRASH, FINE, FINE),
        (CRASH, OUTSIDE, FINE),
        (CRASH, CRASH, OUTSIDE),
    ],
)
def test_any_other_crash_stays_the_candidates(first, again, muted):
    fault = observed([FakeCell(first, FINE), FakeCell(again, muted), FakeCell(again, muted)])
    assert fault.kind == "signal"
