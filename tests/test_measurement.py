"""The slope estimator on synthetic timings, and many calls in one round trip."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from lethe_env import measurement
from lethe_env.cell import CallRequest, ModelRequest, Workshop
from lethe_env.gates.oracle import Oracle
from lethe_env.gates.roofline import timed_probe
from lethe_env.measurement import (
    CALLS_LIMIT,
    LONG_ENOUGH_US,
    UnmeasurableError,
    measure,
    measure_calls,
    measured_speed,
)
from lethe_env.tasks.inputs import draw_inputs
from lethe_env.tasks.model import ShapeFamily, Task

from .doubling import DOUBLE


@pytest.mark.parametrize("call_us", [3.0, 250.0, 40_000.0])
def test_the_cost_of_a_round_trip_cancels(call_us):
    found = measure(lambda calls: 1_234.0 + calls * call_us)
    assert found.call_us == pytest.approx(call_us)


def test_single_outliers_do_not_count():
    trips = 0

    def round_trip(calls):
        nonlocal trips
        trips += 1
        return 1_000.0 + 50.0 * calls + (1e6 if trips % 5 == 0 and calls in (1, 512) else 0.0)

    assert measure(round_trip).call_us == pytest.approx(50.0)


def test_a_slow_first_call_does_not_count():
    asked = []

    def round_trip(calls):
        asked.append(calls)
        return 500.0 + 10.0 * calls + (1e6 if len(asked) == 1 else 0.0)

    assert measure(round_trip).call_us == pytest.approx(10.0)


def test_quick_calls_are_repeated_until_they_show():
    found = measure(lambda calls: 1_000.0 + 100.0 * calls)
    assert (found.calls - 1) * 100.0 >= LONG_ENOUGH_US > found.calls / 2 * 100.0 - 100.0
    assert measure(lambda calls: float(calls)).calls == CALLS_LIMIT


def test_calls_that_take_no_time_cannot_be_measured():
    with pytest.raises(UnmeasurableError, match="no longer than one"):
        measure(lambda calls: 1_000.0)


SOURCE = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []
    def forward(self, x):
        self.seen.append(float(x[0]))
        if x[0] > 100:
            raise ValueError("too large")
        return x * 2, torch.tensor(self.seen)
"""


@pytest.fixture(scope="module")
def workshop():
    with Workshop("interpreter") as shop:
        yield shop


def request(*spares):
    return CallRequest(model=ModelRequest(), inputs=(torch.ones(3),), spares=spares)


def test_inputs_rotate_and_the_last_call_is_on_the_judged_ones(workshop):
    spares = ((torch.full((3,), 2.0),), (torch.full((3,), 3.0),))
    with workshop.open(SOURCE) as cell:
        asked = request(*spares)
        seen = cell.call(CallRequest(**{**vars(asked), "calls": 5}))
    assert seen.outputs[1].data.tolist() == [2.0, 1.0, 3.0, 2.0, 1.0]
    assert seen.outputs[0].data.tolist() == [2.0, 2.0, 2.0]


def test_a_call_that_fails_cannot_be_measured(workshop):
    with workshop.open(SOURCE) as cell, pytest.raises(UnmeasurableError, match="too large"):
        measure_calls(cell, request((torch.full((3,), 200.0),)))


TASK = DOUBLE.replace("n = 64", "n = 1000")
RIGHT = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + x
"""


@pytest.fixture(scope="module")
def speed(workshop):
    task = Task(id="t", source=TASK, family=ShapeFamily(base={"n": 37}))
    probe = timed_probe(task, 0, native_fits=False)
    truth = Oracle(cache_directory=None).truth(task, probe.question, tf32=False)
    asked = CallRequest(model=ModelRequest(), inputs=draw_inputs(task, probe), timed=True)

    def speed(source):
        return measured_speed(workshop, task, source, probe, asked, truth, "a CPU")

    return speed


def test_candidate_and_reference_are_both_timed(speed):
    found = speed(RIGHT)
    assert (found.kind, found.target, found.probe) == (
        "measured",
        "a CPU",
        "normal float32 n=37 timed seed 0",
    )
    assert found.candidate_us > 0 and found.eager_us > 0


def test_nothing_else_is_timed_meanwhile(speed, monkeypatch):
    held = []

    @contextmanager
    def exclusive(device):
        held.append(device)
        yield
        held.append("released")

    def timed(cell, request):
        assert held[-1] == "interpreter"
        return measure_calls(cell, request)

    monkeypatch.setattr(measurement, "exclusive", exclusive)
    monkeypatch.setattr(measurement, "measure_calls", timed)
    assert speed(RIGHT).kind == "measured"
    assert held == ["interpreter", "released"] * 2


def test_outputs_of_the_timed_calls_are_judged(speed):
    hasty = RIGHT.replace("def forward", "calls = 0\n    def forward").replace(
        "return x + x", "self.calls += 1\n        return x + x if self.calls < 9 else x"
    )
    assert speed(hasty).startswith("the timed outputs are wrong")
