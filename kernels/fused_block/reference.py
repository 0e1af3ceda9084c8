"""The fused block in float64: convolution, SiLU, selective scan, RMS norm; and its gradients.

z_t = SiLU(b_conv + Σ_j w_j ∘ x_{t+j})            j = 0 … taps − 1
s = selective_scan(z, δ, A, B, C, D)
y_t = s_t ∘ (mean_d s_t² + ε)^{−1/2} ∘ w_norm
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..float64 import require_float64
from ..selective_scan import reference as scan


def serial(
    x: Tensor,
    conv_weight: Tensor,
    conv_bias: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    norm_weight: Tensor,
    eps: float = 1e-5,
) -> Tensor:
    """Outputs (batch, L, D), with the scan token by token.

    Args:
        x: Inputs (batch, L + taps − 1, D), the tokens before the first output included.
        conv_weight: Weights (D, 1, taps) of the convolution along time.
        conv_bias: Bias (D,) of the convolution.
        delta, A, B, C, D: As in the selective scan.
        norm_weight: Weights (D,) of the norm.
        eps: ε of the norm.

    Raises:
        TypeError: an input that is not float64.
    """
    require_float64(x=x, conv_weight=conv_weight, conv_bias=conv_bias, norm_weight=norm_weight)
    sums = F.conv1d(x.transpose(1, 2), conv_weight, conv_bias, groups=x.shape[-1])
    states = scan.serial(F.silu(sums.transpose(1, 2)), delta, A, B, C, D)
    scale = torch.rsqrt(states.square().mean(-1, keepdim=True) + eps)
    return states * scale * norm_weight


def closed_form(
    x: Tensor,
    conv_weight: Tensor,
    conv_bias: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    norm_weight: Tensor,
    eps: float = 1e-5,
) -> Tensor:
    """The same from sums over windows, a scan without recurrence, and a norm by its length."""
    require_float64(x=x, conv_weight=conv_weight, conv_bias=conv_bias, norm_weight=norm_weight)
    windows = x.unfold(1, conv_weight.shape[-1], 1)
    sums = torch.einsum("btdj,dj->btd", windows, conv_weight[:, 0]) + conv_bias
    states = scan.closed_form(sums / (1 + torch.exp(-sums)), delta, A, B, C, D)
    size = torch.linalg.vector_norm(states, dim=-1, keepdim=True)
    return states / torch.sqrt(size.square() / x.shape[-1] + eps) * norm_weight


def gradients(
    x: Tensor,
    conv_weight: Tensor,
    conv_bias: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    norm_weight: Tensor,
    dy: Tensor,
    eps: float = 1e-5,
) -> tuple[Tensor, ...]:
    """Gradients of ⟨dy, y⟩ for every input, from the last stage back to the first.

    With r = (mean s² + ε)^{−1/2}, g = dy ∘ w_norm and p = Σ_j w_j x_{t+j} + b:

        dw_norm = Σ dy ∘ s r                ds = r g − s r³ mean(g ∘ s)
        dz, dδ, dA, dB, dC, dD              as in the selective scan
        dp = dz ∘ (σ(p) + z (1 − σ(p)))     dx_{t+j} += dp_t w_j,  dw_j = Σ dp_t x_{t+j}
    """
    taps, length = conv_weight.shape[-1], delta.shape[1]
    sums = conv_bias + sum(x[:, j : j + length] * conv_weight[:, 0, j] for j in range(taps))
    gate = torch.sigmoid(sums)
    z = sums * gate
    states = scan.serial(z, delta, A, B, C, D)
    scale = torch.rsqrt(states.square().mean(-1, keepdim=True) + eps)
    dnorm = (dy * states * scale).sum((0, 1))
    weighted = dy * norm_weight
    dstates = scale * weighted - states * scale**3 * (weighted * states).mean(-1, keepdim=True)
    dz, *inner = scan.gradients(z, delta, A, B, C, D, dstates)
    dsums = dz * (gate + z * (1 - gate))
    dx, dweight = torch.zeros_like(x), torch.zeros_like(conv_weight)
    for j in range(taps):
        dx[:, j : j + length] += dsums * conv_weight[:, 0, j]
        dweight[:, 0, j] = (dsums * x[:, j : j + length]).sum((0, 1))
    return dx, dweight, dsums.sum((0, 1)), *inner, dnorm
