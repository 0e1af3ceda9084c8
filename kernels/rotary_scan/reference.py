"""The rotary scan in float64, token by token; the complex state space it equals; its gradients.

    θ_t = Σ_{s≤t} π tanh(φ_s) Δ_s
    h_t = e^{Δ_t A} h_{t−1} + Δ_t x_t (R(θ_t) B_t)ᵀ          state (batch, H, P, N)
    y_t = h_t R(θ_t) C_t

R turns the pairs (2i, 2i+1) of the first 2·Nr elements by the angle θ_i and leaves the rest.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, einsum

from ..float64 import require_float64


def serial(x: Tensor, B: Tensor, C: Tensor, delta: Tensor, A: Tensor, phase: Tensor) -> Tensor:
    """Outputs (batch, L, H, P) by the recurrence.

    Args:
        x: Inputs (batch, L, H, P).
        B: Input maps (batch, L, H, N).
        C: Output maps (batch, L, H, N).
        delta: Step sizes (batch, L, H).
        A: Decay rates (H,), negative for a stable state.
        phase: Turning rates φ before tanh (batch, L, H, Nr), 2·Nr ≤ N.

    Raises:
        TypeError: an input that is not float64.
    """
    outputs, _ = _walk(x, B, C, delta, A, phase)
    return outputs


def complex_form(
    x: Tensor, B: Tensor, C: Tensor, delta: Tensor, A: Tensor, phase: Tensor
) -> Tensor:
    """The same as a diagonal state space with complex decays, which turns the state, not the maps.

    With B and C read as complex numbers over the pairs, h_t = e^{Δ_t A − i π tanh(φ_t) Δ_t} h_{t−1}
    + Δ_t x_t B_t and y_t = Re(h̄_t C_t). The unturned rest of the state is real.
    """
    require_float64(x=x, B=B, C=C, delta=delta, A=A, phase=phase)
    turned = 2 * phase.shape[-1]
    turn = math.pi * torch.tanh(phase) * delta[..., None]
    batch, length, heads, rows = x.shape
    state = x.new_zeros(batch, heads, rows, phase.shape[-1]).to(torch.complex128)
    rest = x.new_zeros(batch, heads, rows, B.shape[-1] - turned)
    outputs = []
    for t in range(length):
        fade = torch.exp(delta[:, t] * A)[..., None, None]
        written = (delta[:, t, :, None] * x[:, t])[..., None]
        spin = torch.exp(-1j * turn[:, t])[:, :, None]
        state = fade * spin * state + written * _pairs(B[:, t, :, :turned])[:, :, None]
        rest = fade * rest + written * B[:, t, :, None, turned:]
        read = (state.conj() * _pairs(C[:, t, :, :turned])[:, :, None]).real.sum(-1)
        outputs.append(read + (rest * C[:, t, :, None, turned:]).sum(-1))
    return torch.stack(outputs, 1)


def gradients(
    x: Tensor, B: Tensor, C: Tensor, delta: Tensor, A: Tensor, phase: Tensor, dy: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of ⟨dy, y⟩ for every input, by the reverse recurrence.

    With a_t = e^{Δ_t A}, B' and C' the turned maps, dh and dθ carried from the right, at each t:

        dC' = h_tᵀ dy                       dh ← dh + dy C'ᵀ
        dB' = Δ dhᵀ x                       dx = Δ dh B'
        dlog a = a ⟨dh, h_{t−1}⟩            dC = R(−θ) dC',  dB = R(−θ) dB'
        dθ ← dθ + ⟨dB', J B'⟩ + ⟨dC', J C'⟩ for each pair, J the quarter turn
        dφ = π (1 − tanh² φ) Δ dθ           dA += Δ dlog a
        dΔ = ⟨dh B', x⟩ + A dlog a + Σ_i π tanh(φ_i) dθ_i
        dh ← a dh
    """
    _, states = _walk(x, B, C, delta, A, phase)
    angle, spin = _angles(delta, phase), torch.tanh(phase)
    turned_B, turned_C = _turned(B, angle), _turned(C, angle)
    dx, dB, dC, ddelta, dphase = (torch.empty_like(tensor) for tensor in (x, B, C, delta, phase))
    dA, dh, dangle = torch.zeros_like(A), torch.zeros_like(states[0]), torch.zeros_like(phase[:, 0])
    for t in reversed(range(x.shape[1])):
        step, fade = delta[:, t], torch.exp(delta[:, t] * A)
        from_C = einsum("bhp,bhpn->bhn", dy[:, t], states[t + 1])
        dh = dh + dy[:, t, ..., None] * turned_C[:, t, :, None]
        from_B = step[..., None] * einsum("bhp,bhpn->bhn", x[:, t], dh)
        seen = einsum("bhpn,bhn->bhp", dh, turned_B[:, t])
        dx[:, t] = step[..., None] * seen
        decayed = fade * (dh * states[t]).sum((-1, -2))
        dA += (step * decayed).sum(0)
        dC[:, t], dB[:, t] = _turned(from_C, -angle[:, t]), _turned(from_B, -angle[:, t])
        dangle = (
            dangle + _torque(from_B, turned_B[:, t], phase) + _torque(from_C, turned_C[:, t], phase)
        )
        dphase[:, t] = math.pi * (1 - spin[:, t].square()) * step[..., None] * dangle
        turning = math.pi * (spin[:, t] * dangle).sum(-1)
        ddelta[:, t] = (seen * x[:, t]).sum(-1) + A * decayed + turning
        dh = fade[..., None, None] * dh
    return dx, dB, dC, ddelta, dA, dphase


def _walk(
    x: Tensor, B: Tensor, C: Tensor, delta: Tensor, A: Tensor, phase: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Outputs, and the state before the first and after every token."""
    require_float64(x=x, B=B, C=C, delta=delta, A=A, phase=phase)
    angle = _angles(delta, phase)
    turned_B, turned_C = _turned(B, angle), _turned(C, angle)
    batch, length, heads, rows = x.shape
    states = [x.new_zeros(batch, heads, rows, B.shape[-1])]
    outputs = []
    for t in range(length):
        written = (delta[:, t, :, None] * x[:, t])[..., None] * turned_B[:, t, :, None]
        fade = torch.exp(delta[:, t] * A)[..., None, None]
        states.append(fade * states[-1] + written)
        outputs.append((states[-1] * turned_C[:, t, :, None]).sum(-1))
    return torch.stack(outputs, 1), states


def _angles(delta: Tensor, phase: Tensor) -> Tensor:
    return torch.cumsum(math.pi * torch.tanh(phase) * delta[..., None], 1)


def _turned(maps: Tensor, angle: Tensor) -> Tensor:
    """R(angle) applied to the last dimension."""
    count = 2 * angle.shape[-1]
    left, right = maps[..., 0:count:2], maps[..., 1:count:2]
    cosine, sine = angle.cos(), angle.sin()
    pairs = torch.stack([left * cosine - right * sine, left * sine + right * cosine], -1)
    return torch.cat([pairs.flatten(-2), maps[..., count:]], -1)


def _torque(gradient: Tensor, turned: Tensor, phase: Tensor) -> Tensor:
    """Gradient of each pair's angle, from the gradient of the turned map."""
    count = 2 * phase.shape[-1]
    return (
        gradient[..., 1:count:2] * turned[..., 0:count:2]
        - gradient[..., 0:count:2] * turned[..., 1:count:2]
    )


def _pairs(maps: Tensor) -> Tensor:
    return torch.complex(maps[..., 0::2], maps[..., 1::2])
