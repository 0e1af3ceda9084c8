"""Gradients of the native backward as outputs, computed in a candidate's own process."""

from __future__ import annotations

import pytest

from lethe_env.gates.comparison import outcome_of
from lethe_env.kernels import cute_dsl
from lethe_env.kernels.gated_delta.blackwell.modules import MODULES
from lethe_env.native_verdicts import native_grader, native_source, native_task
from lethe_env.tasks.probe import Probe

pytestmark = [
    pytest.mark.xdist_group("blackwell"),
    pytest.mark.skipif(not cute_dsl.is_installed(), reason=cute_dsl.MISSING),
]
SIZES = {"batch_size": 1, "num_heads": 2, "length": 3, "key_dim": 16, "value_dim": 19}


@pytest.fixture(scope="module")
def grader():
    with native_grader(()) as shared:
        yield shared


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_process_has_the_dsl_and_gets_its_gradients_right_in_one_dtype(grader, dtype):
    task, (_, module) = native_task("LA"), MODULES["LA"]
    probe = Probe(sizes=SIZES, values="normal", dtype=dtype)
    truth, seen = grader.ask(task, native_source(module), probe)
    if dtype == "bfloat16":
        assert "for float16, not torch.bfloat16" in seen.fault.message and seen.fault.launches == 0
        return
    assert seen.fault is None
    assert [tensor.path for tensor in seen.outputs] == ["output[0]", "output[1]", "output[2]"]
    outcome = outcome_of(probe, truth, seen)
    assert outcome.evidence is None and 0 < outcome.worst_ratio < 1
    launched = {launch.kernel for launch in seen.launches}
    assert "reverse_state_scan_kernel" not in launched and "outputs_kernel" in launched


def test_wrong_gradients_are_out_of_bounds(grader):
    task, (_, module) = native_task("LA"), MODULES["LA"]
    probe = Probe(sizes=SIZES, values="normal", dtype="float16")
    source = native_source(module).replace("ModelNew =", "Right =") + (
        "class ModelNew(Right):\n"
        "    def forward(self, *arguments):\n"
        "        return [1.02 * x for x in super().forward(*arguments)]\n"
    )
    truth, seen = grader.ask(task, source, probe)
    assert seen.fault is None
    assert outcome_of(probe, truth, seen).evidence.path == "output[0]"


@pytest.mark.parametrize("member", MODULES)
def test_a_members_task_asks_for_half_types_only(member):
    task = native_task(member)
    assert task.working_dtype == "float16" and task.id.endswith("_gradients")
    assert not task.waived and task.family.vary["length"][-1] > 64
