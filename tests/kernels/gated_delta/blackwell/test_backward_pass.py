"""The backward by native kernels against the float64 oracle, on the virtual GPU.

Errors are relative to the largest element; 1e-3 is two units of float16, 2^-11, as for Triton's.
"""

import pytest
import torch

from lethe_env.kernels.gated_delta import gated_delta
from lethe_env.kernels.gated_delta.blackwell import natively
from lethe_env.kernels.gated_delta.member_problem import draw_member, kernel_results, true_results
from lethe_env.kernels.gated_delta.members import NAMES
from lethe_env.kernels.gated_delta.problem import draw_problem, worst_relative_error
from lethe_env.vgpu.operations import OperationLog

WITHIN = 1e-3
KEYS, LENGTH = 128, 150

pytestmark = [pytest.mark.usefixtures("virtual_gpu"), pytest.mark.xdist_group("blackwell")]


def assert_near(results, truth):
    assert results.keys() == truth.keys()
    for name, exact in truth.items():
        assert results[name].shape == exact.shape, name
        assert worst_relative_error(results[name], exact) <= WITHIN, name


@pytest.mark.parametrize("values", [64, 128])
@pytest.mark.parametrize("member", NAMES)
def test_gradients_of_every_member(member, values, virtual_gpu):
    """Three chunks, the last not full; three native kernels, the last of the backward but one."""
    given, launched = draw_member(member, LENGTH, KEYS, values), virtual_gpu.session.counts
    launched.clear()
    assert_near(kernel_results(given, backward=natively), true_results(given))
    *_, first, second, third, repair = (name for name, _ in launched)
    assert all(name.startswith("kernel_cutlass_") for name in (first, second, third))
    assert repair == "token_serial_gradient_kernel", "which ends where all inputs are finite"


def test_sequences_and_heads():
    given = draw_member("GDN", 70, KEYS, 64, batch=2, heads=2)
    assert_near(kernel_results(given, backward=natively), true_results(given))


def test_channels_that_tma_does_not_take_are_padded():
    given = draw_member("GDN", 70, 48, 20)
    assert_near(kernel_results(given, backward=natively), true_results(given))


def test_nothing_is_copied_between_kernels():
    """Where TMA takes the channels, tensors lie on the virtual GPU as the forward left them."""
    given = draw_problem(70, KEYS, 64)
    leaves = [getattr(given, name).half().requires_grad_() for name in "qkv"]
    gates = [getattr(given, name).float().requires_grad_() for name in "gbw"]
    results = gated_delta(*leaves, *gates, backward=natively)
    gradients = [torch.ones_like(x) for x in results]
    with OperationLog() as log:
        torch.autograd.grad(results, [*leaves, *gates], gradients)
    assert [operation.name for operation in log.operations] == []


def test_a_gradient_that_tma_cannot_read_is_copied_to_where_it_can():
    p = draw_problem(70, KEYS, 64)
    tokens = [getattr(p, name).half().requires_grad_() for name in "qkv"]
    output, _ = gated_delta(*tokens, backward=natively)
    crooked = torch.zeros(output.numel() + 1).half()[1:].view(output.shape)
    crooked.copy_(p.grad_output)
    assert crooked.is_contiguous() and crooked.data_ptr() % 16
    found, expected = (
        torch.autograd.grad(output, tokens, x, retain_graph=True)
        for x in (crooked, p.grad_output.half())
    )
    assert all(map(torch.equal, found, expected))


def test_bits_do_not_depend_on_the_schedule(virtual_gpu):
    """Units beside the warps late or early, blocks in another order, and the same again."""
    given = draw_member("GDN", LENGTH, KEYS, 64, heads=2)
    session = virtual_gpu.session
    results = []
    for session.early, session.seed in ((False, 0), (False, 0), (True, 1), (True, 2), (None, 3)):
        results.append(kernel_results(given, backward=natively))
    for other in results[1:]:
        assert all(torch.equal(results[0][name], x) for name, x in other.items())


BORDERS = (0, 100, 100, 130)
"""Sequences of 2, 0 and 1 chunks."""


def sequence_gradients(p, begin, end, states, **options):
    """Of the tokens from `begin` to `end`, and of the initial states."""
    tokens = [getattr(p, name)[:, begin:end].half().requires_grad_() for name in "qkv"]
    gates = [getattr(p, name)[:, begin:end].float().requires_grad_() for name in "gbw"]
    states = states.clone().requires_grad_()
    results = gated_delta(*tokens, *gates, initial_state=states, backward=natively, **options)
    cotangents = p.grad_output[:, begin:end].half(), 1 + states.detach()
    return torch.autograd.grad(results, [*tokens, *gates, states], cotangents)


def assert_as_if_alone(p, index, states, packed):
    begin, end = BORDERS[index : index + 2]
    *alone, initial = sequence_gradients(p, begin, end, states[index : index + 1])
    *whole, initials = packed
    assert all(torch.equal(x, y[:, begin:end]) for x, y in zip(alone, whole, strict=True))
    assert torch.equal(initial[0], initials[index])


def test_packed_sequences_are_each_as_if_alone():
    """The chunks that two of them lack change nothing, not even the last bit."""
    p = draw_problem(BORDERS[-1], KEYS, 64)
    states = torch.cat([n * p.initial_state.float() for n in range(3)])
    packed = sequence_gradients(p, 0, BORDERS[-1], states, cu_seqlens=torch.tensor(BORDERS))
    for index in (0, 2):
        assert_as_if_alone(p, index, states, packed)


def test_nan_stays_in_its_sequence():
    p = draw_problem(BORDERS[-1], KEYS, 64)
    p.k[:, 0] = torch.nan
    states = torch.cat([p.initial_state.float()] * 3)
    packed = sequence_gradients(p, 0, BORDERS[-1], states, cu_seqlens=torch.tensor(BORDERS))
    assert packed[1][:, 0].isnan().any()
    assert_as_if_alone(p, 2, states, packed)
