"""The replicated rule, with its blind spots."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from lethe_env.gates import kernelbench_rule
from lethe_env.gates.kernelbench_rule import Rule, Tally
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


class TestRule:
    """The rule to the letter: seeds, tolerances, and KernelBench's own words."""

    def test_the_seeds_are_drawn_as_kernelbench_draws_them(self):
        torch.manual_seed(42)
        expected = [torch.randint(0, 2**32 - 1, (1,)).item() for _ in range(3)]
        assert Rule(trials=3).trial_seeds() == expected

    @pytest.mark.parametrize(
        ("precision", "tolerance", "limit"),
        [
            ("float32", None, 1e-4),
            ("float16", None, 1e-2),
            ("bfloat16", None, 1e-2),
            ("float32", kernelbench_rule.PAPER_TOLERANCE, 1e-2),
        ],
    )
    def test_the_tolerance_follows_from_the_precision(self, precision, tolerance, limit):
        assert Rule(precision=precision, tolerance=tolerance).limit == limit

    @pytest.mark.parametrize("options", [{"trials": 0}, {"precision": "float64"}])
    def test_what_kernelbench_cannot_be_asked_is_refused(self, options):
        with pytest.raises(ValueError):
            Rule(**options)

    def test_a_rule_survives_json(self):
        rule = Rule(trials=2, seed=1, precision="bfloat16", tolerance=0.5)
        assert Rule(**json.loads(json.dumps(rule.to_json()))) == rule

    @pytest.mark.parametrize(
        ("want", "have", "issue", "error"),
        [
            (torch.ones(3), torch.ones(3), "", ""),
            (torch.ones(3), torch.ones(3) + 0.5, "Output mismatch", ""),
            (torch.ones(3), torch.ones(2), "Output shape mismatch: Expected", ""),
            (torch.ones(3), torch.ones(3).double(), "", "builtins.RuntimeError: "),
            (torch.ones(3), (torch.ones(3),), "", "builtins.AttributeError: 'tuple'"),
            (torch.arange(3), torch.arange(3) + 1, "", "builtins.RuntimeError: mean"),
            (torch.tensor([torch.nan]), torch.tensor([torch.nan]), "Output mismatch", ""),
        ],
    )
    def test_a_trial_ends_as_it_would_there(self, want, have, issue, error):
        tally = Tally(Rule(trials=1))
        tally.compare(want, have)
        assert tally.issue.startswith(issue)
        assert tally.error.startswith(error)
        assert (tally.issue == "") == (issue == "")
        assert (tally.error == "") == (error == "")
        assert tally.finding().status is (Status.FAIL if issue or error else Status.PASS)

    def test_every_failing_trial_is_measured(self):
        tally = Tally(Rule(trials=3))
        for offset in (0.0, 1.0, 3.0):
            tally.compare(torch.zeros(2), torch.tensor([0.0, offset]))
        measured = tally.finding().measured
        assert (measured["passed_trials"], measured["trials"]) == (1, 3)
        assert (measured["max_difference_0"], measured["avg_difference_1"]) == (1.0, 1.5)


@pytest.mark.parametrize("shift", [0.0, 5e-5, 3e-3, 0.2, 7.0])
def test_it_says_at_which_tolerance_it_would_accept(judge, shift):
    change = output(lambda x: x + shift)
    needed = judge(change).measured["needed_tolerance"]
    assert judge(change, needed * 1.001 + 1e-12).status is Status.PASS
    if shift:
        assert judge(change, needed * 0.999).status is Status.FAIL


def test_no_tolerance_makes_up_for_a_value_out_of_place():
    want = torch.tensor([1.0, torch.inf, -torch.inf])
    assert kernelbench_rule.needed_tolerance(want, want) == 0.0
    for value in (torch.nan, torch.inf, 3.0):
        have = torch.tensor([1.0, torch.inf, value])
        assert kernelbench_rule.needed_tolerance(want, have) == torch.inf
        assert kernelbench_rule.needed_tolerance(have, want) == torch.inf
    assert kernelbench_rule.needed_tolerance(torch.empty(0), torch.empty(0)) == 0.0
