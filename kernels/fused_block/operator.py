"""C5 and C6: convolution, SiLU, selective scan and RMS norm as one differentiable function."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..arguments import check_operands, dense_rows
from ..schedule import Schedule, choose
from ..selective_scan.launch import Scan, run_backward, run_forward
from .convolution import convolution_input_gradient
from .norm import rms_norm, rms_norm_input_gradient, rms_norm_weight_gradient

_CHANNELS = 128
"""Channels that a program of the pointwise kernels handles at a time."""
_ROWS = 64
"""Rows over which one program sums the gradient of the norm's weights."""


def fused_block(
    x: Tensor,
    conv_weight: Tensor,
    conv_bias: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    norm_weight: Tensor,
    *,
    eps: float = 1e-5,
    schedule: Schedule | None = None,
) -> Tensor:
    """A Mamba block's inner part, differentiable in every tensor.

    z_t = SiLU(b + Σ_j w_j ∘ x_{t+j}), s = selective_scan(z, δ, A, B, C, D), and
    y_t = s_t ∘ (mean_d s_t² + ε)^{−1/2} ∘ w_norm. The convolution and SiLU are computed inside the
    scan, so z is never in memory.

    Tensors may be float32, float16 or bfloat16, also mixed; everything inside is float32. Two calls
    with the same inputs give the same bytes.

    Args:
        x: Inputs (batch, length + taps − 1, channels): the tokens that the first output sees come
            first, zeros at the beginning of a sequence.
        conv_weight: Weights (channels, 1, taps) of the convolution along time.
        conv_bias: Bias (channels,) of the convolution.
        delta: Step sizes before softplus (batch, length, channels), in the time unit of 1/A.
        A: Decay rates (channels, state), below zero for a state that fades.
        B: Input maps (batch, length, state).
        C: Output maps (batch, length, state).
        D: Skip weights (channels,).
        norm_weight: Weights (channels,) of the norm.
        eps: ε of the norm.
        schedule: Launch configuration of the scan; by default `schedule.choose` decides.

    Returns:
        Outputs (batch, length, channels) in the dtype of `x`.

    Raises:
        TypeError: a tensor of another dtype.
        ValueError: shapes or devices that do not fit each other (the number of channels of the
            convolution and of `x` above all), or a state of more than 1,024.

    Source: the selective scan's, with the depthwise convolution and gating of Mamba's block, and
    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    tensors = {
        **{"x": x, "conv_weight": conv_weight, "conv_bias": conv_bias, "delta": delta},
        **{"A": A, "B": B, "C": C, "D": D, "norm_weight": norm_weight},
    }
    sizes = check_operands(
        "fused_block",
        tensors,
        {
            **{"x": ("batch", "tokens", "channels"), "conv_weight": ("channels", 1, "taps")},
            **{"delta": ("batch", "length", "channels"), "A": ("channels", "state")},
            **{name: ("batch", "length", "state") for name in ("B", "C")},
            **{name: ("channels",) for name in ("conv_bias", "D", "norm_weight")},
        },
    )
    wanted = sizes["length"] + sizes["taps"] - 1
    if sizes["tokens"] != wanted:
        raise ValueError(
            f"fused_block: x has {sizes['tokens']} tokens, but {sizes['length']} outputs of a "
            f"convolution over {sizes['taps']} need {wanted}: pad x with "
            f"{sizes['taps'] - 1} tokens in front"
        )
    chosen = schedule or choose(
        sequences=sizes["batch"],
        length=sizes["length"],
        rows=sizes["channels"],
        columns=sizes["state"],
    )
    result: Tensor = _FusedBlock.apply(*tensors.values(), eps, chosen)
    return result


class _FusedBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments_: Any) -> Tensor:
        *operands, norm_weight, eps, schedule = arguments_
        scan = _scan(*operands)
        states, checkpoint = run_forward(
            scan, schedule, dtype=torch.float32, keep=any(ctx.needs_input_grad)
        )
        batch, length, channels = states.shape
        y = torch.empty_like(states, dtype=scan.x.dtype)
        scale = states.new_empty(batch, length)
        gain = norm_weight.contiguous()
        rms_norm[(batch * length,)](
            *(states, gain, y, scale, channels, eps), BLOCK=_CHANNELS, num_warps=2
        )
        ctx.save_for_backward(*operands, norm_weight, states, scale, checkpoint)
        ctx.schedule = schedule
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        *operands, norm_weight, states, scale, checkpoint = ctx.saved_tensors
        scan = _scan(*operands)
        dstates, dnorm = _norm_gradients(states, scale, norm_weight.contiguous(), dy)
        dsums, ddelta, da, db, dc, dskip, dtaps, dbias = run_backward(
            scan, dstates, checkpoint, ctx.schedule
        )
        dx = torch.empty(scan.x.shape, dtype=scan.x.dtype, device=scan.x.device)
        _, length, channels = dsums.shape
        tokens = dx.shape[0] * dx.shape[1]
        convolution_input_gradient[(tokens * triton.cdiv(channels, _CHANNELS),)](
            *(dsums, scan.taps, dx, length, channels),
            TAPS=scan.taps.shape[1],
            BLOCK=_CHANNELS,
            num_warps=2,
        )
        gradients = (dx, dtaps.unsqueeze(1), dbias, ddelta, da, db, dc, dskip, dnorm)
        return (*gradients, None, None)


def _norm_gradients(
    states: Tensor, scale: Tensor, gain: Tensor, dy: Tensor
) -> tuple[Tensor, Tensor]:
    """Of the rows, float32, and of the weights."""
    batch, length, channels = states.shape
    rows, dy = batch * length, dense_rows(dy)
    given = (*dy.stride()[:2], length)
    dstates = torch.empty_like(states)
    rms_norm_input_gradient[(rows,)](
        *(states, gain, scale, dy, dstates, *given, channels), BLOCK=_CHANNELS, num_warps=2
    )
    row_blocks = triton.cdiv(rows, _ROWS)
    part = states.new_empty(row_blocks, channels)
    rms_norm_weight_gradient[(row_blocks * triton.cdiv(channels, _CHANNELS),)](
        *(states, scale, dy, part, *given, rows, channels),
        ROWS=_ROWS,
        BLOCK=_CHANNELS,
        num_warps=2,
    )
    return dstates, part.sum(0).to(gain.dtype)


def _scan(
    x: Tensor,
    conv_weight: Tensor,
    conv_bias: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
) -> Scan:
    x, delta, b, c = (dense_rows(tensor) for tensor in (x, delta, B, C))
    taps = conv_weight.squeeze(1).contiguous()
    return Scan(x, delta, A.contiguous(), b, c, D.contiguous(), taps, conv_bias.contiguous())
