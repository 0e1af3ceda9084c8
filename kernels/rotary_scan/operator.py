"""The rotary scan as a differentiable PyTorch function."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..arguments import check_operands, dense_rows
from ..mimo_scan.launch import Scan, run_backward, run_forward
from ..schedule import Schedule, choose
from .rotation import rotate, rotate_back

_TILE = 512
"""Elements that one program rotates at a time: four a thread at four warps."""


def rotary_scan(
    x: Tensor,
    B: Tensor,
    C: Tensor,
    delta: Tensor,
    A: Tensor,
    phase: Tensor,
    *,
    schedule: Schedule | None = None,
) -> Tensor:
    """Complex-valued state-space scan in its rotary form, differentiable in every tensor.

    h_t = e^{Δ_t A} h_{t−1} + Δ_t x_t (R(θ_t) B_t)ᵀ and y_t = h_t R(θ_t) C_t for each head, with
    h_0 = 0. R turns the pairs (2i, 2i+1) of the first 2·turning elements by the angles
    θ_t = Σ_{s≤t} π tanh(φ_s) Δ_s. This equals a diagonal state space with complex decays
    e^{Δ_t (A − i π tanh φ_t)}.

    Tensors may be float32, float16 or bfloat16, also mixed; the state, the angles and all sums are
    float32. Two calls with the same inputs give the same bytes.

    Args:
        x: Inputs (batch, length, heads, rows).
        B: Input maps (batch, length, heads, state).
        C: Output maps (batch, length, heads, state).
        delta: Step sizes Δ (batch, length, heads), in the time unit of 1/A.
        A: Decay rates (heads,), below zero for a state that fades.
        phase: Turning rates φ before tanh (batch, length, heads, turning), 2·turning ≤ state;
            tanh(φ) is in half turns per unit of time.
        schedule: Launch configuration; by default `schedule.choose` decides.

    Returns:
        Outputs (batch, length, heads, rows) in the dtype of `x`.

    Raises:
        TypeError: a tensor of another dtype.
        ValueError: shapes or devices that do not fit each other, or a state of more than 1,024.

    Source: Mamba-3, where a complex state is a real one with data-dependent rotary embeddings.
    """
    maps = ("batch", "length", "heads", "state")
    sizes = check_operands(
        "rotary_scan",
        {"x": x, "B": B, "C": C, "delta": delta, "A": A, "phase": phase},
        {
            **{"x": ("batch", "length", "heads", "rows"), "B": maps, "C": maps},
            **{"delta": ("batch", "length", "heads"), "A": ("heads",)},
            "phase": ("batch", "length", "heads", "turning"),
        },
    )
    if 2 * sizes["turning"] > sizes["state"]:
        raise ValueError(
            f"rotary_scan: phase turns {sizes['turning']} pairs, "
            f"but a state of {sizes['state']} has only {sizes['state'] // 2}"
        )
    chosen = schedule or choose(
        sequences=sizes["batch"] * sizes["heads"],
        length=sizes["length"],
        rows=sizes["rows"],
        columns=sizes["state"],
    )
    result: Tensor = _RotaryScan.apply(x, B, C, delta, A, phase, chosen)
    return result


class _RotaryScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments_: Any) -> Tensor:
        *operands, schedule = arguments_
        x, B, C, delta, A, phase = _dense(*operands)
        batch, length, heads, state = B.shape
        turned_b, turned_c = (_float_like(B, *B.shape) for _ in range(2))
        turns, alpha = _float_like(B, *phase.shape), _float_like(B, *delta.shape)
        rotate[(batch * heads,)](
            *(B, C, delta, A, phase, turned_b, turned_c, turns, alpha),
            *(B.stride()[:3] + C.stride()[:3] + phase.stride()[:3]),
            *(length, heads, state, phase.shape[-1]),
            **_tile(state),
        )
        scan = _scan(x, turned_b, turned_c, delta, alpha)
        y, checkpoint = run_forward(scan, schedule, keep=any(ctx.needs_input_grad))
        ctx.save_for_backward(*operands, turned_b, turned_c, turns, alpha, checkpoint)
        ctx.schedule = schedule
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        *operands, turned_b, turned_c, turns, alpha, checkpoint = ctx.saved_tensors
        x, B, C, delta, A, phase = _dense(*operands)
        batch, length, heads, state = B.shape
        scan = _scan(x, turned_b, turned_c, delta, alpha)
        inner = run_backward(scan, dy.contiguous(), checkpoint, ctx.schedule)
        db, dc, ddelta, dphase = (
            torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            for tensor in (B, C, delta, phase)
        )
        da = _float_like(B, batch, heads)
        rotate_back[(batch * heads,)](
            *(turned_b, turned_c, inner.b, inner.c, turns, alpha, inner.alpha, inner.delta),
            *(delta, A, phase, db, dc, ddelta, da, dphase),
            *phase.stride()[:3],
            *(length, heads, state, phase.shape[-1]),
            **_tile(state),
        )
        return inner.x, db, dc, ddelta, da.sum(0).to(A.dtype), dphase, None


def _dense(
    x: Tensor, B: Tensor, C: Tensor, delta: Tensor, A: Tensor, phase: Tensor
) -> tuple[Tensor, ...]:
    maps = (dense_rows(tensor) for tensor in (x, B, C))
    return (*maps, delta.contiguous(), A.contiguous(), dense_rows(phase))


def _scan(x: Tensor, b: Tensor, c: Tensor, delta: Tensor, alpha: Tensor) -> Scan:
    """The scan over turned maps is one of a single rank without weights."""
    return Scan(x, b.unsqueeze(2), c.unsqueeze(2), delta, alpha)


def _tile(state: int) -> dict[str, int]:
    pairs = max(8, triton.next_power_of_2(triton.cdiv(state, 2)))
    return {"TOKENS": max(16, _TILE // pairs), "BLOCK_PAIRS": pairs, "num_warps": 4}


def _float_like(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)
