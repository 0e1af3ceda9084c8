"""The multi-input multi-output scan in float64, token by token; and two other forms of it.

    S_t = α_t S_{t−1} + Δ_t Σ_r (x_t ∘ m^in_r) B_{t,r}ᵀ      state (batch, H, P, N)
    y_t = Σ_r m^out_r ∘ (S_t C_{t,r})

Every rank writes to and reads from one state, so the sum over ranks is inside the recurrence.
"""

from __future__ import annotations

import torch
from torch import Tensor, einsum

from ..float64 import require_float64


def serial(
    x: Tensor, B: Tensor, C: Tensor, delta: Tensor, alpha: Tensor, mix_in: Tensor, mix_out: Tensor
) -> Tensor:
    """Outputs (batch, L, H, P) by the recurrence.

    Args:
        x: Inputs (batch, L, H, P).
        B: Input maps (batch, L, R, H, N).
        C: Output maps (batch, L, R, H, N).
        delta: Step sizes (batch, L, H).
        alpha: Decay factors (batch, L, H).
        mix_in: Weights of the inputs (H, R, P).
        mix_out: Weights of the outputs (H, R, P).

    Raises:
        TypeError: an input that is not float64.
    """
    outputs, _ = _walk(x, B, C, delta, alpha, mix_in, mix_out)
    return outputs


def closed_form(
    x: Tensor, B: Tensor, C: Tensor, delta: Tensor, alpha: Tensor, mix_in: Tensor, mix_out: Tensor
) -> Tensor:
    """The same without a state, as masked attention over tokens and ranks.

    y_t = Σ_r m^out_r ∘ Σ_{s≤t} Π_{s<q≤t} α_q Δ_s Σ_k ⟨C_{t,r}, B_{s,k}⟩ (x_s ∘ m^in_k).
    Quadratic in L.
    """
    require_float64(x=x, B=B, C=C, delta=delta, alpha=alpha, mix_in=mix_in, mix_out=mix_out)
    length = x.shape[1]
    fade = x.new_zeros(x.shape[0], length, length, x.shape[2])
    for s in range(length):
        fade[:, s, s] = delta[:, s]
        for t in range(s + 1, length):
            fade[:, t, s] = fade[:, t - 1, s] * alpha[:, t]
    scores = einsum("btrhn,bskhn->btsrkh", C, B)
    mixed = einsum("bshp,hkp->bskhp", x, mix_in)
    return einsum("hrp,btsh,btsrkh,bskhp->bthp", mix_out, fade, scores, mixed)


def gradients(
    x: Tensor,
    B: Tensor,
    C: Tensor,
    delta: Tensor,
    alpha: Tensor,
    mix_in: Tensor,
    mix_out: Tensor,
    dy: Tensor,
) -> tuple[Tensor, ...]:
    """Gradients of ⟨dy, y⟩ for every input, by the reverse recurrence.

    With dS carried from the right, at each t, for each rank r:

        dC_r = S_tᵀ (dy ∘ m^out_r)          dm^out_r += dy ∘ S_t C_r
        dS ← dS + Σ_r (dy ∘ m^out_r) C_rᵀ
        dα = ⟨dS, S_{t−1}⟩                   z_r = dS B_r
        dΔ = Σ_r ⟨z_r, x ∘ m^in_r⟩          dB_r = Δ dSᵀ (x ∘ m^in_r)
        dx = Δ Σ_r z_r ∘ m^in_r             dm^in_r += Δ z_r ∘ x
        dS ← α dS
    """
    _, states = _walk(x, B, C, delta, alpha, mix_in, mix_out)
    dx, dB, dC, ddelta, dalpha = (torch.empty_like(tensor) for tensor in (x, B, C, delta, alpha))
    dmix_in, dmix_out = torch.zeros_like(mix_in), torch.zeros_like(mix_out)
    dS = torch.zeros_like(states[0])
    for t in reversed(range(x.shape[1])):
        state, step = states[t + 1], delta[:, t, :, None, None]
        weighted = dy[:, t, :, None] * mix_out
        dC[:, t] = einsum("bhrp,bhpn->brhn", weighted, state)
        dmix_out += einsum("bhp,bhpn,brhn->hrp", dy[:, t], state, C[:, t])
        dS = dS + einsum("bhrp,brhn->bhpn", weighted, C[:, t])
        mixed = x[:, t, :, None] * mix_in
        dalpha[:, t] = (dS * states[t]).sum((-1, -2))
        seen = einsum("bhpn,brhn->bhrp", dS, B[:, t])
        ddelta[:, t] = (seen * mixed).sum((-1, -2))
        dB[:, t] = delta[:, t, None, :, None] * einsum("bhpn,bhrp->brhn", dS, mixed)
        dx[:, t] = (step * seen * mix_in).sum(-2)
        dmix_in += (step * seen * x[:, t, :, None]).sum(0)
        dS = alpha[:, t, :, None, None] * dS
    return dx, dB, dC, ddelta, dalpha, dmix_in, dmix_out


def _walk(
    x: Tensor, B: Tensor, C: Tensor, delta: Tensor, alpha: Tensor, mix_in: Tensor, mix_out: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Outputs, and the state before the first and after every token."""
    require_float64(x=x, B=B, C=C, delta=delta, alpha=alpha, mix_in=mix_in, mix_out=mix_out)
    batch, length, heads, rows = x.shape
    states = [x.new_zeros(batch, heads, rows, B.shape[-1])]
    outputs = []
    for t in range(length):
        mixed = x[:, t, :, None] * mix_in
        written = einsum("bhrp,brhn->bhpn", mixed, B[:, t])
        fade, step = alpha[:, t, :, None, None], delta[:, t, :, None, None]
        states.append(fade * states[-1] + step * written)
        read = einsum("bhpn,brhn->bhrp", states[-1], C[:, t])
        outputs.append((mix_out * read).sum(2))
    return torch.stack(outputs, 1), states
