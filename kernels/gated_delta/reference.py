"""The oracle of the gated-delta family: token by token, in float64, straight from its definition.

For one batch entry and head, with the state S of shape [K, V] and tokens t = 1 … T,

    S_t = (I − k_t (b_t∘k_t)ᵀ) Diag(exp g_t) S_{t−1} + k_t (w_t∘v_t)ᵀ        (1)
    o_t = S_tᵀ (scale · q_t)

with queries q, keys k, log decays g and erase gates b in R^K, values v and write gates w in R^V.
Equation (1) is Gated DeltaNet-2 (arXiv 2605.22791). `members.py` has the older members of the
family, each from its own definition.

Layouts: q, k, g, b are [B, T, H, K]; v, w, o are [B, T, H, V]; states are [B, H, K, V].
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Gradients(NamedTuple):
    """Gradients of a loss with respect to the inputs of `serial_forward`, each in its shape."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    b: Tensor
    w: Tensor
    initial_state: Tensor


def serial_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    b: Tensor,
    w: Tensor,
    *,
    scale: float = 1.0,
    initial_state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run Eq. (1) token by token; differentiable by autograd.

    Args:
        q: Queries [B, T, H, K].
        k: Keys [B, T, H, K].
        v: Values [B, T, H, V].
        g: Natural logarithms of the decays [B, T, H, K], all at most zero, −inf for a reset.
        b: Erase gates [B, T, H, K].
        w: Write gates [B, T, H, V].
        scale: Factor of the queries.
        initial_state: S_0 [B, H, K, V], zero if None.

    Returns:
        Outputs [B, T, H, V] and the final state [B, H, K, V].

    Raises:
        TypeError: A tensor is not float64: an oracle in reduced precision is none.
    """
    _demand_float64(q, k, v, g, b, w, initial_state)
    state = _zero_state(k, v) if initial_state is None else initial_state
    outputs = []
    for t in range(k.shape[1]):
        decayed = g[:, t].exp().unsqueeze(-1) * state
        written = w[:, t] * v[:, t] - _read(decayed, b[:, t] * k[:, t])
        state = decayed + _outer(k[:, t], written)
        outputs.append(_read(state, scale * q[:, t]))
    return torch.stack(outputs, dim=1), state


def serial_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    b: Tensor,
    w: Tensor,
    grad_output: Tensor,
    grad_final_state: Tensor | None = None,
    *,
    scale: float = 1.0,
    initial_state: Tensor | None = None,
) -> Gradients:
    """Run the reverse of Eq. (1), derived by hand.

    With S̃_t = Diag(exp g_t) S_{t−1}, u_t = w_t∘v_t − S̃_tᵀ(b_t∘k_t) and S_t = S̃_t + k_t u_tᵀ, carry
    the gradient dS of S_t from the last token to the first:

        dS  += scale q_t do_tᵀ             dq_t = scale S_t do_t
        du_t = dSᵀ k_t                     e_t  = −S̃_t du_t         (of the erase vector b_t∘k_t)
        dv_t = du_t∘w_t                    dw_t = du_t∘v_t
        db_t = e_t∘k_t                     dk_t = dS u_t + e_t∘b_t
        dS̃  = dS − (b_t∘k_t) du_tᵀ         dg_t = Σ_v S̃_t∘dS̃
        dS   = Diag(exp g_t) dS̃

    Args:
        q: As for `serial_forward`, like k, v, g, b, w, scale and initial_state.
        k: Keys.
        v: Values.
        g: Log decays.
        b: Erase gates.
        w: Write gates.
        grad_output: Gradient of the outputs [B, T, H, V].
        grad_final_state: Gradient of the final state [B, H, K, V], zero if None.
        scale: Factor of the queries.
        initial_state: S_0, zero if None.

    Raises:
        TypeError: A tensor is not float64.
    """
    _demand_float64(q, k, v, g, b, w, grad_output, grad_final_state, initial_state)
    state = _zero_state(k, v) if initial_state is None else initial_state
    decayed_states, states, writes = [], [], []
    for t in range(k.shape[1]):
        decayed = g[:, t].exp().unsqueeze(-1) * state
        written = w[:, t] * v[:, t] - _read(decayed, b[:, t] * k[:, t])
        state = decayed + _outer(k[:, t], written)
        decayed_states.append(decayed)
        states.append(state)
        writes.append(written)
    grad_state = torch.zeros_like(state) if grad_final_state is None else grad_final_state
    dq, dk, dv, dg, db, dw = (torch.empty_like(x) for x in (q, k, v, g, b, w))
    for t in reversed(range(k.shape[1])):
        grad_state = grad_state + _outer(scale * q[:, t], grad_output[:, t])
        dq[:, t] = scale * _apply(states[t], grad_output[:, t])
        du = _read(grad_state, k[:, t])
        erased = -_apply(decayed_states[t], du)
        dw[:, t], dv[:, t] = du * v[:, t], du * w[:, t]
        db[:, t] = erased * k[:, t]
        dk[:, t] = _apply(grad_state, writes[t]) + erased * b[:, t]
        grad_decayed = grad_state - _outer(b[:, t] * k[:, t], du)
        dg[:, t] = (grad_decayed * decayed_states[t]).sum(-1)
        grad_state = g[:, t].exp().unsqueeze(-1) * grad_decayed
    return Gradients(dq, dk, dv, dg, db, dw, grad_state)


def autograd_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    b: Tensor,
    w: Tensor,
    grad_output: Tensor,
    grad_final_state: Tensor,
    *,
    scale: float = 1.0,
    initial_state: Tensor,
) -> Gradients:
    """Take the gradients of `serial_forward` from autograd. Arguments as for `serial_backward`."""
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v, g, b, w, initial_state)]
    outputs = serial_forward(*leaves[:6], scale=scale, initial_state=leaves[6])
    return Gradients(*torch.autograd.grad(outputs, leaves, (grad_output, grad_final_state)))


def _demand_float64(*tensors: Tensor | None) -> None:
    for tensor in tensors:
        if tensor is not None and tensor.dtype != torch.float64:
            raise TypeError(
                f"the reference runs in float64 only, and got {tensor.dtype}: widen the inputs, or "
                "call lethe_env.kernels.gated_delta.gated_delta"
            )


def _zero_state(k: Tensor, v: Tensor) -> Tensor:
    return k.new_zeros(k.shape[0], k.shape[2], k.shape[3], v.shape[3])


def _outer(x: Tensor, y: Tensor) -> Tensor:
    """[B, H, K], [B, H, V] → [B, H, K, V]."""
    return x.unsqueeze(-1) * y.unsqueeze(-2)


def _read(state: Tensor, x: Tensor) -> Tensor:
    """Sᵀx: [B, H, K, V], [B, H, K] → [B, H, V]."""
    return torch.einsum("bhkv,bhk->bhv", state, x)


def _apply(state: Tensor, y: Tensor) -> Tensor:
    """Sy: [B, H, K, V], [B, H, V] → [B, H, K]."""
    return torch.einsum("bhkv,bhv->bhk", state, y)
