"""Modelled speed from the counts that a cell states."""

import pytest
import torch

from lethe_env.gates.results import Results
from lethe_env.gates.roofline import modelled_speed, timed_probe
from lethe_env.gates.speed import Speed
from lethe_env.tasks.inputs import draw_inputs
from lethe_env.tasks.model import ShapeFamily
from lethe_env.tasks.observation import Observation, OutputTensor
from lethe_env.tasks.work import CallWork, KernelWork, OperationWork

SOURCE = """
import torch
rows, width = 64, 128
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2)
def get_inputs():
    return [torch.randn(rows, width)]
def get_init_inputs():
    return []
"""
BYTES = 4 * 64 * 128
LAUNCH_US, BYTES_PER_US = 2.0, 2039e3


@pytest.fixture
def task(make_task):
    return make_task(SOURCE, family=ShapeFamily(base={"rows": 4}, vary={"rows": (1, 5)}))


@pytest.fixture
def speed(task, oracle):
    """The speed of a call with this work, and with outputs off by `error`."""

    def speed(work, error=0.0, **fields):
        probe = timed_probe(task, 0, native_fits=True)
        (x,) = draw_inputs(task, probe)
        data = torch.relu(x * 2) + error
        output = OutputTensor(path="output", data=data, stride=data.stride(), **fields)
        return modelled_speed(
            Results(
                task=task,
                truths={probe: oracle.truth(task, probe.question, tf32=False)},
                observations={probe: Observation(outputs=(output,), work=work)},
            ),
            probe,
        )

    return speed


def one_kernel(**fields):
    launches = fields.get("launches", 1)
    grid = {"blocks": 108 * launches, "warps": 432 * launches}
    fields = {"kernel": "k", "footprint_bytes": 2 * BYTES, **grid, **fields}
    return CallWork(kernels=(KernelWork(**fields),))


def test_one_fused_kernel_beats_two_eager_operations(speed):
    found = speed(one_kernel())
    assert (found.kind, found.target, found.launches) == ("modelled", "A100", 1)
    assert found.candidate_us == pytest.approx(LAUNCH_US + 2 * BYTES / BYTES_PER_US)
    assert found.eager_us == pytest.approx(2 * (LAUNCH_US + 2 * BYTES / BYTES_PER_US))
    assert found.speedup == pytest.approx(2.0)


def test_work_moved_to_torch_is_not_free(speed):
    kernel = one_kernel().kernels
    beside = OperationWork(name="relu", calls=3, bytes=3 * BYTES)
    found = speed(CallWork(kernels=kernel, operations=(beside,)))
    assert found.candidate_us == pytest.approx(4 * LAUNCH_US + 5 * BYTES / BYTES_PER_US)
    assert found.operations == 3 and found.bytes == 5 * BYTES


def test_every_launch_pays_its_overhead_and_its_share(speed):
    once, often = speed(one_kernel()), speed(one_kernel(launches=10))
    assert often.candidate_us == pytest.approx(once.candidate_us + 9 * LAUNCH_US)


def test_issue_and_tensor_cores_enter(speed):
    busy = one_kernel(instructions={"f32": 10**9}, mma_operations={"f16": 10**6})
    assert speed(busy).candidate_us > 1000
    assert speed(busy).mma_operations == {"f16": 10**6}


def test_a_grid_of_one_block_uses_one_multiprocessor(speed):
    wide = speed(one_kernel()).candidate_us - LAUNCH_US
    narrow = speed(one_kernel(blocks=1, warps=4)).candidate_us - LAUNCH_US
    assert narrow > 20 * wide


def test_wrong_outputs_have_no_speed(speed):
    assert speed(one_kernel(), error=1.0).startswith("the timed outputs are wrong: own float32")


def test_counts_that_do_not_account_for_the_outputs_are_refused(speed):
    assert "do not account" in speed(one_kernel(footprint_bytes=BYTES - 1))
    assert isinstance(speed(one_kernel(footprint_bytes=BYTES)), Speed)
    assert "ran nothing" in speed(CallWork(), shares_storage_with="input[0]")


def test_a_device_that_counts_nothing_gives_no_speed(speed):
    assert "does not count" in speed(None)


def test_the_timed_probe_is_native_or_the_largest_member(task):
    assert timed_probe(task, 3, native_fits=True).label == "own float32 native timed seed 3"
    assert timed_probe(task, 0, native_fits=False).sizes == {"rows": 5}
    assert timed_probe(task, 0, native_fits=True).question.timed is False


def test_kernels_are_added_up_by_name(speed):
    work = CallWork(
        kernels=(
            KernelWork(kernel="a", footprint_bytes=BYTES, instructions={"f32": 1}),
            KernelWork(kernel="b", sectors=7),
            KernelWork(kernel="a", launches=2, stored_bytes=5, instructions={"f32": 1, "move": 2}),
        )
    )
    a, b = speed(work).kernels
    assert (a.kernel, a.launches, a.stored_bytes, b.sectors) == ("a", 3, 5, 7)
    assert a.instructions == {"f32": 2, "move": 2}
