"""Native kernels run over results that nobody has written, under every schedule.

Assertions here say what they found themselves, as pytest explains only those of tests.
"""

from __future__ import annotations

import pytest
import torch

from lethe_env.kernels.footprint import footprint
from lethe_env.tasks.observation import KernelResources
from lethe_env.vgpu.cute.function import VirtualFunction

SCHEDULES = [(early, seed) for early in (False, True) for seed in (0, 1, 2)]


def run(function, inputs, *shapes):
    """What a kernel writes into float32 tensors of these shapes, all NaN before."""
    results = [torch.full(shape, torch.nan) for shape in shapes]
    for result in results:
        function.session.memory.mark_undefined(result)
    function(*inputs, *results)
    findings = function.session.take_findings()
    assert not findings, findings
    return results


def assert_bits_do_not_depend_on_the_schedule(function, inputs, *shapes):
    session = function.session
    found = []
    for session.early, session.seed in SCHEDULES:
        found.append(run(function, inputs, *shapes))
    session.early = None
    for schedule, other in zip(SCHEDULES[1:], found[1:], strict=True):
        assert all(map(torch.equal, found[0], other)), schedule


def resources(function, inputs, *shapes):
    """What a launch takes that writes results of these shapes; see `resources_of`."""
    return resources_of(function, [*inputs, *map(torch.empty, shapes)])


def resources_of(function, arguments):
    """What a launch takes, as RES-02 judges it; nothing is launched."""
    requests = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VirtualFunction, "launch", lambda _, request: requests.append(request))
        function(*arguments)
    (request,) = requests
    found = footprint(function.compiled.ptx, function.compiled.cubin)
    return KernelResources(
        kernel=function.compiled.host.function_name,
        target="sm_100",
        registers=found.registers,
        spill_bytes=found.spilled_bytes,
        shared_bytes=request.shared_bytes,
        tensor_memory_columns=found.columns,
        threads=request.block[0],
    )


def assert_within(result, exact, bound):
    """Hold every element to its own bound, which may be zero."""
    difference = (result.double() - exact).abs()
    worst = (difference / bound.clamp_min(torch.finfo(bound.dtype).tiny)).max().item()
    assert (difference <= bound).all(), f"{worst:.3g} times the bound"
