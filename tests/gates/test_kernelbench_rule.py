"""The replicated rule, with its blind spots."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lethe_env.gates import kernelbench_rule
from lethe_env.gates.results import Results
from lethe_env.gates.verdict import Status
from lethe_env.tasks.modules import reference_module
from lethe_env.tasks.observation import Fault, Observation


@pytest.fixture
def judge(row_sum, oracle, observe):
    def run(change, tolerance=None):
        probes = kernelbench_rule.plan(row_sum)
        truths = {probe: oracle.truth(row_sum, probe, tf32=False) for probe in probes}
        seen = {p: observe(row_sum, p, reference_module(row_sum, p)) for p in probes}
        changed = {probe: change(observation) for probe, observation in seen.items()}
        results = Results(task=row_sum, truths=truths, observations=changed)
        return kernelbench_rule.judge(results, tolerance)

    return run


def output(change):
    def apply(seen: Observation) -> Observation:
        (tensor,) = seen.outputs
        return replace(seen, outputs=(replace(tensor, data=change(tensor.data)),))

    return apply


def test_five_trials_are_made(row_sum):
    assert len({probe.seed for probe in kernelbench_rule.plan(row_sum)}) == 5


@pytest.mark.parametrize(
    ("change", "tolerance", "status"),
    [
        (lambda x: x, None, Status.PASS),
        (lambda x: x + 5e-5, None, Status.PASS),
        (lambda x: x + 5e-3, None, Status.FAIL),
        (lambda x: x + 5e-3, 1e-2, Status.PASS),
        (lambda x: x[:-1], None, Status.FAIL),
        (lambda x: x.double(), None, Status.FAIL),
        (lambda x: x * torch.nan, None, Status.FAIL),
    ],
)
def test_allclose_and_the_shape_are_all_it_asks(judge, change, tolerance, status):
    assert judge(output(change), tolerance).status is status


def test_a_fault_is_a_rejection(judge):
    fault = Fault(kind="exception", phase="forward", message="no", exception="KeyError")
    finding = judge(lambda seen: Observation(fault=fault))
    assert finding.status is Status.FAIL
    assert "KeyError: no" in finding.reason
