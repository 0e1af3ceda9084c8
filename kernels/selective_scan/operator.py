"""The selective scan as a differentiable PyTorch function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..arguments import check_operands, dense_rows
from ..schedule import Schedule, choose
from .launch import Scan, run_backward, run_forward


def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    *,
    delta_softplus: bool = True,
    schedule: Schedule | None = None,
) -> Tensor:
    """Mamba's selective scan, differentiable in every tensor.

    h_t = e^{Δ_t A} ∘ h_{t−1} + (Δ_t u_t) B_tᵀ and y_t = h_t C_t + D ∘ u_t, with h_0 = 0 and
    Δ = softplus(δ).

    Tensors may be float32, float16 or bfloat16, also mixed; the state and all sums are float32.
    Two calls with the same inputs give the same bytes. Views of a larger tensor are read in place
    if their last dimension is dense.

    Args:
        u: Inputs (batch, length, channels).
        delta: Step sizes δ (batch, length, channels), in the time unit of 1/A.
        A: Decay rates (channels, state), below zero for a state that fades.
        B: Input maps (batch, length, state).
        C: Output maps (batch, length, state).
        D: Skip weights (channels,); without them y is the state's part alone.
        delta_softplus: Whether Δ is softplus(δ), else δ itself.
        schedule: Launch configuration; by default `schedule.choose` decides.

    Returns:
        Outputs (batch, length, channels) in the dtype of `u`.

    Raises:
        TypeError: a tensor of another dtype.
        ValueError: shapes or devices that do not fit each other, or a state of more than 1,024.

    Source: Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023,
    algorithm 2, with the input map discretised as Δ B.
    """
    skip = u.new_zeros(u.shape[-1]) if D is None else D
    tensors = {"u": u, "delta": delta, "A": A, "B": B, "C": C, "D": skip}
    sequence = ("batch", "length", "channels")
    sizes = check_operands(
        "selective_scan",
        tensors,
        {
            "u": sequence,
            "delta": sequence,
            "A": ("channels", "state"),
            "B": ("batch", "length", "state"),
            "C": ("batch", "length", "state"),
            "D": ("channels",),
        },
    )
    chosen = schedule or choose(
        sequences=sizes["batch"],
        length=sizes["length"],
        rows=sizes["channels"],
        columns=sizes["state"],
    )
    result: Tensor = _SelectiveScan.apply(u, delta, A, B, C, skip, delta_softplus, chosen)
    return result


class _SelectiveScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        delta: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        D: Tensor,
        softplus: bool,
        schedule: Schedule,
    ) -> Tensor:
        scan = _scan(u, delta, A, B, C, D, softplus)
        keep = any(ctx.needs_input_grad)
        y, checkpoint = run_forward(scan, schedule, dtype=u.dtype, keep=keep)
        ctx.save_for_backward(u, delta, A, B, C, D, checkpoint)
        ctx.softplus, ctx.schedule = softplus, schedule
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        *operands, checkpoint = ctx.saved_tensors
        scan = _scan(*operands, ctx.softplus)
        gradients = run_backward(scan, dense_rows(dy), checkpoint, ctx.schedule)
        return (*gradients[:6], None, None)


def _scan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, softplus: bool
) -> Scan:
    views = [dense_rows(tensor) for tensor in (u, delta)]
    maps = [dense_rows(tensor) for tensor in (B, C)]
    return Scan(*views, A.contiguous(), *maps, D.contiguous(), softplus=softplus)
