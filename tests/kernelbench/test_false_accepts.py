"""What KernelBench accepts wrongly: its rule does so here too, the contract does not."""

from __future__ import annotations

import pytest

from .conftest import candidate, problem
from .false_accepts import CALLS, INPUTS, MAGNITUDES, SHARED_PROCESS, WEIGHTS

ACCEPTED = {**INPUTS, **MAGNITUDES, **WEIGHTS, **CALLS}
pytestmark = pytest.mark.xdist_group("kernelbench false accepts")


@pytest.fixture(scope="module")
def results(judge):
    return judge({**ACCEPTED, **SHARED_PROCESS})


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_rule_accepts_and_the_contract_rejects(results, name):
    by_rule, by_contract = results["kernelbench"][name], results["contract"][name]
    assert by_rule.correctness, by_rule.metadata
    assert by_rule.metadata["correctness_trials"] == "(5 / 5)"
    assert by_contract.judged
    assert not by_contract.correctness
    assert by_contract.metadata["contract"]["passed"] is False


@pytest.mark.parametrize("name", SHARED_PROCESS)
def test_what_needs_a_shared_process_is_accepted_by_nobody(results, name):
    for check in ("kernelbench", "contract"):
        result = results[check][name]
        assert result.judged
        assert not result.correctness, check


def test_an_unlaunched_kernel_is_no_kernel(judge):
    decoy = candidate(
        "return torch.relu(x) * 2",
        head="import triton\n@triton.jit\ndef kernel(x):\n    pass",
    )
    case = {"problem": problem("return torch.relu(x) * 2"), "candidate": decoy}
    result = judge({"decoy": case})["contract"]["decoy"]
    assert result.correctness
    assert result.metadata["contract"]["kernel"] == "none"
