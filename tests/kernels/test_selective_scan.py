"""The selective scan where public kernels have failed: saturation, extreme decays, odd launches."""

from __future__ import annotations

import pytest
import torch

from lethe_env.kernels.schedule import FILLING_PROGRAMS, Schedule, choose
from lethe_env.kernels.selective_scan import reference, selective_scan

from .state_space import OPERATIONS, error_ratios, results, schedule

pytestmark = pytest.mark.xdist_group("state space kernels")
SCAN = OPERATIONS["selective_scan"]


def ratios(operands, plan):
    found = error_ratios(SCAN, operands, results(SCAN, operands, plan))
    return max(found.values()), found


def test_softplus_saturates_as_it_should(gpu):
    """Far below zero it is e^δ, above 20 it is δ; log(1 + e^δ) in float32 is 0 below −17."""
    operands = SCAN.draw(1, 16)
    values = torch.tensor([-80.0, -30.0, -17.0, -1e-3, 0.0, 19.9, 20.5, 30.0])
    operands["delta"] = values.repeat(2)[None, :, None].expand(1, 16, 37).contiguous()
    worst, found = ratios(operands, schedule())
    assert worst < 1, found


@pytest.mark.parametrize("segment", [16, 1024])
def test_decays_may_underflow_and_be_absent(gpu, segment):
    """A from −1e4, where the state is forgotten at once, to −1e-30, where nothing is ever."""
    operands = SCAN.draw(1, 33)
    exponents = torch.linspace(-30, 4, operands["A"].numel())
    operands["A"] = -(10.0**exponents).reshape(operands["A"].shape)
    worst, found = ratios(operands, schedule(segment=segment))
    assert worst < 1, found


def test_without_softplus_and_without_skip(gpu):
    operands = SCAN.draw(2, 16)
    operands["delta"] = operands["delta"].sigmoid()
    arguments = [operands[key] for key in ("u", "delta", "A", "B", "C")]
    y = selective_scan(*arguments, delta_softplus=False, schedule=schedule())
    inverse = {**operands, "delta": operands["delta"].double().expm1().log(), "D": torch.zeros(37)}
    exact = reference.serial(*(tensor.double() for tensor in inverse.values()))
    assert float((y.double() - exact).abs().max() / exact.abs().max()) < 16 * 2**-24


@pytest.mark.parametrize(
    "plan",
    [schedule(rows=8, warps=4), schedule(rows=64, warps=8), schedule(chunk=32, segment=32)],
    ids=lambda plan: f"{plan.rows} rows, {plan.warps} warps, segments of {plan.segment}",
)
def test_every_launch_configuration_is_right(gpu, plan):
    operands = SCAN.draw(1, 33)
    worst, found = ratios(operands, plan)
    assert worst < 1, found


def test_a_wide_state(gpu):
    operands = SCAN.draw(1, 3, 5, 100)
    worst, found = ratios(operands, choose(sequences=1, length=3, rows=5, columns=100))
    assert worst < 1, found


def test_the_default_schedule_cuts_time_only_when_rows_are_few():
    long = {"length": 4096, "columns": 16}
    assert choose(sequences=8, rows=2048, **long).segments(4096) == 1
    few = choose(sequences=1, rows=64, **long)
    assert few.segments(4096) == 64, "one segment a chunk, at most"
    some = choose(sequences=2, rows=1024, **long)
    assert some.segments(4096) * 2 * 1024 // 32 >= FILLING_PROGRAMS
    assert choose(sequences=1, rows=8, length=1, columns=3).segments(1) == 1


def test_a_schedule_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="no multiple of 64"):
        Schedule(32, 16, 100)
    with pytest.raises(ValueError, match="at most 1024"):
        choose(sequences=1, length=1, rows=1, columns=1025)
