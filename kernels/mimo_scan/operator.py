"""The multi-input multi-output scan as a differentiable PyTorch function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..arguments import check_operands, dense_rows
from ..schedule import Schedule, choose
from .launch import Scan, run_backward, run_forward


def mimo_scan(
    x: Tensor,
    B: Tensor,
    C: Tensor,
    delta: Tensor,
    alpha: Tensor,
    mix_in: Tensor,
    mix_out: Tensor,
    *,
    schedule: Schedule | None = None,
) -> Tensor:
    """Multi-input multi-output state-space scan, differentiable in every tensor.

    S_t = α_t S_{t−1} + Δ_t Σ_r (x_t ∘ m^in_r) B_{t,r}ᵀ and y_t = Σ_r m^out_r ∘ (S_t C_{t,r}) for
    each head, with S_0 = 0.

    Tensors may be float32, float16 or bfloat16, also mixed; the state and all sums are float32.
    Two calls with the same inputs give the same bytes.

    Args:
        x: Inputs (batch, length, heads, rows).
        B: Input maps (batch, length, ranks, heads, state).
        C: Output maps (batch, length, ranks, heads, state).
        delta: Step sizes Δ (batch, length, heads).
        alpha: Decay factors α (batch, length, heads), in [0, 1] for a state that stays bounded.
        mix_in: Weights of the inputs (heads, ranks, rows).
        mix_out: Weights of the outputs (heads, ranks, rows).
        schedule: Launch configuration; by default `schedule.choose` decides.

    Returns:
        Outputs (batch, length, heads, rows) in the dtype of `x`.

    Raises:
        TypeError: a tensor of another dtype.
        ValueError: shapes or devices that do not fit each other, or a state of more than 1,024.

    Source: Mamba-3's multi-input multi-output form, whose sum over ranks is folded into one state.
    """
    tensors = {
        **{"x": x, "B": B, "C": C, "delta": delta, "alpha": alpha},
        **{"mix_in": mix_in, "mix_out": mix_out},
    }
    maps = ("batch", "length", "ranks", "heads", "state")
    sizes = check_operands(
        "mimo_scan",
        tensors,
        {
            **{"x": ("batch", "length", "heads", "rows"), "B": maps, "C": maps},
            **{name: ("batch", "length", "heads") for name in ("delta", "alpha")},
            **{name: ("heads", "ranks", "rows") for name in ("mix_in", "mix_out")},
        },
    )
    chosen = schedule or choose(
        sequences=sizes["batch"] * sizes["heads"],
        length=sizes["length"],
        rows=sizes["rows"],
        columns=sizes["state"],
    )
    result: Tensor = _MimoScan.apply(*tensors.values(), chosen)
    return result


class _MimoScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments_: Any) -> Tensor:
        *operands, schedule = arguments_
        y, checkpoint = run_forward(_scan(*operands), schedule, keep=any(ctx.needs_input_grad))
        ctx.save_for_backward(*operands, checkpoint)
        ctx.schedule = schedule
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        *operands, checkpoint = ctx.saved_tensors
        gradients = run_backward(_scan(*operands), dy.contiguous(), checkpoint, ctx.schedule)
        pairs = zip(gradients, operands, strict=True)
        return (*(gradient.to(operand.dtype) for gradient, operand in pairs), None)


def _scan(*operands: Tensor) -> Scan:
    views = [dense_rows(tensor) for tensor in operands[:3]]
    return Scan(*views, *(tensor.contiguous() for tensor in operands[3:]))
