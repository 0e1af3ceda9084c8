"""Native kernels run over results that nobody has written, under every schedule.

Assertions here say what they found themselves, as pytest explains only those of tests.
"""

from __future__ import annotations

import torch

from lethe_env.kernels.footprint import footprint
from lethe_env.tasks.observation import KernelResources

SCHEDULES = [(early, seed) for early in (False, True) for seed in (0, 1, 2)]


def run(function, launch, *arguments):
    """What a launch of `native_stages` leaves; memory that it allocates is undefined before.

    What it does not touch, stubs, stays NaN.
    """
    memory = function.session.memory

    def over_nothing(*given):
        for tensor in given:
            if isinstance(tensor, torch.Tensor) and tensor.data_ptr() not in known:
                if tensor.is_floating_point():
                    tensor.fill_(torch.nan)
                memory.mark_undefined(tensor)
        function(*given)

    known = {tensor.data_ptr() for tensor in _tensors(arguments)}
    results = launch(over_nothing, *arguments)
    findings = function.session.take_findings()
    assert not findings, findings
    return results


def _tensors(values):
    """All tensors in tuples, and in objects with attributes."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors(value)
        elif hasattr(value, "__dataclass_fields__"):
            yield from _tensors(tuple(getattr(value, name) for name in value.__dataclass_fields__))


def assert_bits_do_not_depend_on_the_schedule(function, launch, *arguments):
    session = function.session
    found = []
    for session.early, session.seed in SCHEDULES:
        found.append(run(function, launch, *arguments))
    session.early = None
    for schedule, other in zip(SCHEDULES[1:], found[1:], strict=True):
        assert all(map(same_bits, found[0], other)), schedule


def same_bits(one, other):
    """Equal; NaN, which is what nobody wrote, equals itself."""
    return torch.equal(one.nan_to_num(torch.inf), other.nan_to_num(torch.inf))


def resources(function):
    """What the last launch took, as RES-02 judges it."""
    found = footprint(function.compiled.ptx, function.compiled.cubin)
    return KernelResources(
        kernel=function.compiled.host.function_name,
        target="sm_100",
        registers=found.registers,
        spill_bytes=found.spilled_bytes,
        shared_bytes=function.request.shared_bytes,
        tensor_memory_columns=found.columns,
        threads=function.request.block[0],
    )


def assert_within(result, exact, bound):
    """Hold every element to its own bound, which may be zero."""
    difference = (result.double() - exact).abs()
    worst = (difference / bound.clamp_min(torch.finfo(bound.dtype).tiny)).max().item()
    assert (difference <= bound).all(), f"{worst:.3g} times the bound"
