"""The selective scan in float64, token by token, from its definition; and two other forms of it.

With Δ = softplus(δ):

    h_t = e^{Δ_t A} ∘ h_{t−1} + (Δ_t u_t) B_tᵀ        state (batch, D, N)
    y_t = h_t C_t + D ∘ u_t
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..float64 import require_float64


def serial(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """Outputs (batch, L, D) by the recurrence.

    Args:
        u: Inputs (batch, L, D).
        delta: Step sizes before softplus (batch, L, D).
        A: Decay rates (D, N), negative for a stable state.
        B: Input maps (batch, L, N).
        C: Output maps (batch, L, N).
        D: Skip weights (D,).

    Raises:
        TypeError: an input that is not float64.
    """
    outputs, _ = _walk(u, delta, A, B, C, D)
    return outputs


def closed_form(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """The same without a recurrence.

    y_t = Σ_{s≤t} ⟨C_t, e^{A Σ_{s<r≤t} Δ_r} ∘ B_s⟩ Δ_s u_s + D ∘ u_t.

    Quadratic in L. Each exponent is a sum of its own terms, not a difference of running totals.
    """
    require_float64(u=u, delta=delta, A=A, B=B, C=C, D=D)
    step = F.softplus(delta)
    rows = []
    for t in range(u.shape[1]):
        later = torch.arange(t + 1)[:, None] < torch.arange(t + 1)
        span = torch.einsum("st,btd->bsd", later.double(), step[:, : t + 1])
        fade = torch.exp(span[..., None] * A)
        read = torch.einsum("bsdn,bsn,bn->bsd", fade, B[:, : t + 1], C[:, t])
        rows.append((read * step[:, : t + 1] * u[:, : t + 1]).sum(1) + D * u[:, t])
    return torch.stack(rows, 1)


def gradients(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, dy: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of ⟨dy, y⟩ for every input, by the reverse recurrence.

    With a_t = e^{Δ_t A} and dh carried from the right, at each t:

        dC_t = Σ_d dy h_t            dh ← dh + dy C_tᵀ
        γ = dh ∘ a_t ∘ h_{t−1}       β = dh B_t
        dB_t = Σ_d dh (Δ_t u_t)      dΔ_t = Σ_n γ ∘ A + β u_t
        dA += γ Δ_t                  du_t = β Δ_t + D dy_t
        dδ_t = dΔ_t σ(δ_t)           dh ← a_t ∘ dh
    """
    _, states = _walk(u, delta, A, B, C, D)
    step, slope = F.softplus(delta), torch.sigmoid(delta)
    du, ddelta, dB, dC = (torch.empty_like(tensor) for tensor in (u, delta, B, C))
    dA, dh = torch.zeros_like(A), torch.zeros_like(states[0])
    for t in reversed(range(u.shape[1])):
        fade = torch.exp(step[:, t, :, None] * A)
        written = (step[:, t] * u[:, t])[..., None]
        dC[:, t] = (dy[:, t, :, None] * states[t + 1]).sum(1)
        dh = dh + dy[:, t, :, None] * C[:, t, None]
        through = dh * fade * states[t]
        read = (dh * B[:, t, None]).sum(-1)
        dB[:, t] = (dh * written).sum(1)
        dA += (through * step[:, t, :, None]).sum(0)
        ddelta[:, t] = ((through * A).sum(-1) + read * u[:, t]) * slope[:, t]
        du[:, t] = read * step[:, t] + D * dy[:, t]
        dh = fade * dh
    return du, ddelta, dA, dB, dC, (dy * u).sum((0, 1))


def _walk(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Outputs, and the state before the first and after every token."""
    require_float64(u=u, delta=delta, A=A, B=B, C=C, D=D)
    step = F.softplus(delta)
    states = [u.new_zeros(u.shape[0], *A.shape)]
    outputs = []
    for t in range(u.shape[1]):
        written = (step[:, t] * u[:, t])[..., None] * B[:, t, None]
        states.append(torch.exp(step[:, t, :, None] * A) * states[-1] + written)
        outputs.append((states[-1] * C[:, t, None]).sum(-1) + D * u[:, t])
    return torch.stack(outputs, 1), states
