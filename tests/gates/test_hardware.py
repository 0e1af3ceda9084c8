"""RES-02 on made-up compiles: one launch on one target is one entry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lethe_env.gates import hardware
from lethe_env.gates.hardware import SHARED_LIMIT_BYTES
from lethe_env.gates.results import Results
from lethe_env.gates.verdict import Status
from lethe_env.tasks.catalog import find_task
from lethe_env.tasks.observation import KernelResources

SMALL = KernelResources(kernel="k", target="sm_90", shared_bytes=1024, threads=128, choice="c")
LARGE = replace(SMALL, shared_bytes=SHARED_LIMIT_BYTES["sm_90"] + 8)


def judge(*resources):
    results = Results(
        task=find_task("elementwise/relu"), truths={}, observations={}, resources=resources
    )
    return hardware.judge(results)


def test_a_configuration_that_does_not_fit_is_skipped_as_a_tuner_does():
    finding = judge(SMALL, LARGE)
    assert finding.status is Status.PASS
    assert finding.reason == "1 kernels fit sm_90; a tuner skips 1 of the configurations on sm_90"
    assert finding.measured["shared_bytes"] == SMALL.shared_bytes


@pytest.mark.parametrize(
    ("resources", "undecided"),
    [
        pytest.param((LARGE, replace(LARGE, threads=256)), {"c"}, id="no configuration fits"),
        pytest.param((LARGE, replace(SMALL, choice="d")), {"c"}, id="another choice has room"),
        pytest.param((LARGE, replace(SMALL, target="sm_100")), {"c"}, id="it fits another target"),
        pytest.param((replace(LARGE, choice=""), replace(SMALL, choice="")), set(), id="no tuner"),
        pytest.param((SMALL, replace(SMALL, error="no compile")), set(), id="it does not compile"),
    ],
)
def test_what_no_tuner_would_skip_is_charged(resources, undecided):
    assert judge(*resources).status is Status.FAIL
    assert hardware.undecided(resources) == undecided


def test_every_target_has_to_have_a_configuration_that_fits():
    other = {"target": "sm_100"}
    assert judge(SMALL, LARGE, replace(SMALL, **other), replace(LARGE, **other)).status is (
        Status.PASS
    )
    finding = judge(SMALL, LARGE, replace(LARGE, **other))
    assert finding.status is Status.FAIL and "on sm_100" in finding.reason
