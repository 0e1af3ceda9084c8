"""Rows brought to unit length, as the delta rules want queries and keys, and the gradients.

y = x r,  dx = r (dy − y ⟨y, dy⟩)  with r = (‖x‖² + ε)^−1/2
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable


@triton.jit(do_not_specialize=["eps"])
def unit_length_kernel(x, y, inverse, width, eps, BLOCK: tl.constexpr):
    """y and r of one row; grid (rows).

    Where the sum of squares overflows, squares of 2**-80 of the values give r, and ε is then too
    small to matter.
    """
    row, channel = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = channel < width
    values = tl.load(x + row * width + channel, mask=inside, other=0.0).to(tl.float32)
    small = values * 8.271806125530277e-25
    total = tl.sum(values * values, axis=0)
    r = 1.0 / tl.sqrt_rn(total + eps)
    from_small = 8.271806125530277e-25 / tl.sqrt_rn(tl.sum(small * small, axis=0))
    r = tl.where(total == float("inf"), from_small, r)
    tl.store(y + row * width + channel, (values * r).to(y.dtype.element_ty), mask=inside)
    tl.store(inverse + row, r)


@triton.jit
def unit_length_gradient_kernel(x, grad, inverse, result, width, BLOCK: tl.constexpr):
    """dx of one row; grid (rows)."""
    row, channel = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = channel < width
    r = tl.load(inverse + row)
    y = tl.load(x + row * width + channel, mask=inside, other=0.0).to(tl.float32) * r
    given = tl.load(grad + row * width + channel, mask=inside, other=0.0).to(tl.float32)
    dx = r * (given - y * tl.sum(y * given, axis=0))
    tl.store(result + row * width + channel, dx.to(result.dtype.element_ty), mask=inside)


def unit_length(x: Tensor, eps: float) -> Tensor:
    """x (‖x‖² + ε)^−1/2 along the last dimension, differentiable, in the shape and dtype of x.

    Inside it is float32.

    Args:
        x: Rows of a floating dtype, [..., width].
        eps: ε, which keeps a row of zeros where it is.
    """
    result: Tensor = _UnitLength.apply(x, eps)
    return result


class _UnitLength(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        x, width = x.contiguous(), x.shape[-1]
        y = torch.empty_like(x)
        inverse = x.new_empty(x.numel() // width, dtype=torch.float32)
        unit_length_kernel[(inverse.numel(),)](
            *(x, y, inverse, width, eps), BLOCK=triton.next_power_of_2(width)
        )
        ctx.save_for_backward(x, inverse)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, inverse = ctx.saved_tensors
        width, result = x.shape[-1], torch.empty_like(x)
        unit_length_gradient_kernel[(inverse.numel(),)](
            *(x, grad.contiguous(), inverse, result, width), BLOCK=triton.next_power_of_2(width)
        )
        return result, None
