"""Rows of unit length, and their gradients, against float64."""

import pytest
import torch

from lethe_env.kernels.gated_delta.unit_length import unit_length

pytestmark = [pytest.mark.usefixtures("virtual_gpu"), pytest.mark.xdist_group("gated_delta")]


def truth(x, grad, eps):
    x = x.detach().double().requires_grad_()
    y = x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps)
    return y.detach(), *torch.autograd.grad(y, x, grad.double())


@pytest.mark.parametrize("factor", [1e-4, 1.0, 1e6, 1e25])
@pytest.mark.parametrize("width", [1, 16, 37])
def test_values_and_gradients(width, factor):
    """A sum over the width commits as many roundings, and ten more are made before and after it.

    Rows have a length of at most one; dx is the difference of two terms of at most r ‖dy‖.
    """
    x = (torch.randn(2, 5, width) * factor).requires_grad_()
    grad = torch.randn(2, 5, width)
    y = unit_length(x, 1e-6)
    (dx,) = torch.autograd.grad(y, x, grad)
    exact, exact_dx = truth(x, grad, 1e-6)
    room = (width + 10) * 2**-24
    size = (x.double().square().sum(-1, keepdim=True) + 1e-6).rsqrt() * grad.norm(
        dim=-1, keepdim=True
    )
    assert ((y.double() - exact).abs() < room).all()
    assert ((dx.double() - exact_dx).abs() < 2 * room * size).all()


def test_rows_of_zeros_stay_and_strides_do_not_matter():
    x = torch.randn(3, 4, 16).transpose(0, 1)
    x[2, 1] = 0
    y = unit_length(x, 1e-6)
    assert not y[2, 1].any()
    assert torch.equal(y, unit_length(x.contiguous(), 1e-6))


def test_half_inputs_are_rounded_once():
    x = torch.randn(8, 16).half()
    exact, _ = truth(x, torch.zeros_like(x), 1e-6)
    y = unit_length(x, 1e-6)
    assert y.dtype == torch.float16
    assert ((y.double() - exact).abs() <= 2**-11 * exact.abs() + 32 * 2**-24).all()


def test_where_nan_and_infinity_go():
    x = torch.randn(3, 4)
    x[1, 2], x[2, 0] = torch.nan, -torch.inf
    y = unit_length(x, 1e-6)
    assert y[1].isnan().all()
    assert y[2, 0].isnan() and not y[2, 1:].any()
