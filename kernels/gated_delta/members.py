"""The members of the family, each from its own definition and none by way of Eq. (1).

| member | log decay g | erase b | write w | source |
|---|---|---|---|---|
| LA, linear attention | 0 | 0 | 1 | arXiv 2006.16236, without the normaliser |
| GLA, gated linear attention | [B, T, H, K] | 0 | 1 | arXiv 2312.06635 |
| SSD, Mamba-2 | [B, T, H] | 0 | 1 | arXiv 2405.21060; k = B, q = C, v = Δx, g = ΔA |
| KDA, Kimi delta attention | [B, T, H, K] | β | β | arXiv 2510.26692 |
| GDN, gated delta net 2 | [B, T, H, K] | [B, T, H, K] | [B, T, H, V] | arXiv 2605.22791 |

Tensors are float64 and laid out as in `reference.py`; β and the scalar g are [B, T, H]. All return
the outputs [B, T, H, V] for an initial state of zero and a scale of one.
"""

from __future__ import annotations

import torch
from torch import Tensor

NAMES = ("LA", "GLA", "SSD", "KDA", "GDN")


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """State as a running sum: S_t = Σ_{s≤t} k_s v_sᵀ."""
    states = torch.einsum("bthk,bthv->bthkv", k, v).cumsum(1)
    return torch.einsum("bthk,bthkv->bthv", q, states)


def gated_linear_attention(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    """Masked quadratic form: o_t = Σ_{s≤t} ⟨q_t, exp(g_{s+1} + … + g_t)∘k_s⟩ v_s."""
    decay = _spans(g).exp()
    weights = torch.einsum("bthk,bshk,btshk->btsh", q, k, decay)
    return torch.einsum("btsh,bshv->bthv", weights, v)


def state_space_duality(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
    """One-semiseparable mask: o = (L∘QKᵀ)V with L_ts = exp(g_{s+1} + … + g_t)."""
    mask = _spans(g).exp()
    weights = torch.einsum("bthk,bshk->btsh", q, k) * mask
    return torch.einsum("btsh,bshv->bthv", weights, v)


def kimi_delta_attention(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Dense transition matrices: S_t = (I − β k kᵀ) Diag(e^g) S_{t−1} + β k vᵀ."""
    erased = beta.unsqueeze(-1) * k
    return _by_matrices(q, k, erased, g, beta.unsqueeze(-1) * v)


def gated_delta_net(q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """Dense transition matrices: S_t = (I − k (b∘k)ᵀ) Diag(e^g) S_{t−1} + k (w∘v)ᵀ."""
    return _by_matrices(q, k, b * k, g, w * v)


def _by_matrices(q: Tensor, k: Tensor, erased: Tensor, g: Tensor, written: Tensor) -> Tensor:
    identity = torch.eye(k.shape[-1], dtype=k.dtype)
    state = k.new_zeros(k.shape[0], k.shape[2], k.shape[3], written.shape[3])
    outputs = []
    for t in range(k.shape[1]):
        column = k[:, t].unsqueeze(-1)
        transition = (identity - column * erased[:, t].unsqueeze(-2)) @ torch.diag_embed(
            g[:, t].exp()
        )
        state = transition @ state + column * written[:, t].unsqueeze(-2)
        outputs.append((state * q[:, t].unsqueeze(-1)).sum(-2))
    return torch.stack(outputs, dim=1)


def _spans(g: Tensor) -> Tensor:
    """Σ_{l=s+1..t} g_l for t ≥ s, −inf above: [B, T, H, …] → [B, T, T, H, …].

    Summed directly, never as a difference of two running sums, so that −inf stays −inf.
    """
    length = g.shape[1]
    later = torch.ones(length, length, dtype=torch.bool).tril(-1)
    not_before = torch.ones(length, length, dtype=torch.bool).tril()
    trailing = (1,) * (g.dim() - 2)
    terms = g.unsqueeze(2).expand(-1, -1, length, *g.shape[2:])
    sums = terms.masked_fill(~later.view(length, length, *trailing), 0.0).cumsum(1)
    return sums.masked_fill(~not_before.view(length, length, *trailing), -torch.inf)
