"""Eq. (1) against other definitions of its members, autograd, and itself in reverse."""

import pytest
import torch

from lethe_env.kernels.gated_delta import members
from lethe_env.kernels.gated_delta.problem import draw_problem, worst_relative_error
from lethe_env.kernels.gated_delta.reference import (
    Gradients,
    autograd_backward,
    serial_backward,
    serial_forward,
)

AGREEMENT = 1e-12
"""A few thousand float64 roundings, relative to the largest element."""


@pytest.fixture(scope="module")
def problem():
    return draw_problem(37, 16, 12, batch=2, heads=2)


def wide(x, width):
    return x.unsqueeze(-1).expand(*x.shape, width)


def member_case(name, p):
    """The member's own definition, its arguments, and the gates (g, b, w) that make Eq. (1) it."""
    zero, one, key, value = torch.zeros_like(p.g), torch.ones_like(p.w), p.k.shape[-1], 12
    g, beta = p.g[..., 0], p.b[..., 0]
    match name:
        case "LA":
            return members.linear_attention, (p.q, p.k, p.v), lambda: (zero, zero, one)
        case "GLA":
            return (
                members.gated_linear_attention,
                (p.q, p.k, p.v, p.g),
                lambda g: (g, zero, one),
            )
        case "SSD":
            return (
                members.state_space_duality,
                (p.q, p.k, p.v, g),
                lambda g: (wide(g, key), zero, one),
            )
        case "KDA":
            return (
                members.kimi_delta_attention,
                (p.q, p.k, p.v, p.g, beta),
                lambda g, beta: (g, wide(beta, key), wide(beta, value)),
            )
        case "GDN":
            return (
                members.gated_delta_net,
                p.inputs,
                lambda g, b, w: (g, b, w),
            )
    raise ValueError(name)


@pytest.mark.parametrize("name", members.NAMES)
def test_a_member_is_a_case_of_the_equation_with_all_its_gradients(problem, name):
    definition, arguments, gates = member_case(name, problem)
    leaves = [x.clone().requires_grad_() for x in arguments]
    expected = definition(*leaves)
    truths = torch.autograd.grad(expected, leaves, problem.grad_output)
    output, _ = serial_forward(*leaves[:3], *gates(*leaves[3:]))
    gradients = torch.autograd.grad(output, leaves, problem.grad_output)
    for result, truth in zip((output, *gradients), (expected, *truths), strict=True):
        assert worst_relative_error(result.detach(), truth.detach()) < AGREEMENT


def test_the_reverse_recurrence_is_the_gradient(problem):
    options = {"scale": problem.scale, "initial_state": problem.initial_state}
    by_hand = serial_backward(*problem.inputs, *problem.cotangents, **options)
    truth = autograd_backward(*problem.inputs, *problem.cotangents, **options)
    for name, ours, theirs in zip(Gradients._fields, by_hand, truth, strict=True):
        assert worst_relative_error(ours, theirs) < AGREEMENT, name


def test_a_hard_reset_forgets_everything_and_has_finite_gradients(problem):
    g = problem.g.clone()
    g[:, 20] = -torch.inf
    options = {"scale": problem.scale, "initial_state": problem.initial_state}
    p = (*problem.inputs[:3], g, *problem.inputs[4:])
    output, _ = serial_forward(*p, **options)
    fresh, _ = serial_forward(*(x[:, 20:] for x in p), scale=problem.scale)
    assert torch.equal(output[:, 20:], fresh)
    late = problem.grad_output.clone()
    late[:, :20] = 0.0
    gradients = serial_backward(*p, late, problem.grad_final_state, **options)
    assert all(bool(x.isfinite().all()) for x in gradients)
    assert not gradients.g[:, :21].any()
    assert not gradients.initial_state.any()


def test_the_oracle_refuses_reduced_precision(problem):
    with pytest.raises(TypeError, match="float64 only"):
        serial_forward(*problem.to(torch.float32).inputs)
    with pytest.raises(TypeError, match="float64 only"):
        serial_backward(*problem.inputs, problem.grad_output.float())
