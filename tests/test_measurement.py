"""The slope estimator on synthetic timings, and many calls in one round trip."""

from __future__ import annotations

import pytest
import torch

from lethe_env.cell import CallRequest, ModelRequest, Workshop
from lethe_env.measurement import (
    CALLS_LIMIT,
    LONG_ENOUGH_US,
    UnmeasurableError,
    measure,
    measure_calls,
)


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
