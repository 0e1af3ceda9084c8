"""Gated delta rule: the state decays by one factor per head before each correction."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4
num_heads = 8
length = 256
key_dim = 64
value_dim = 64
eps = 1e-6


class Model(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, q, k, v, g, beta):
        """Run S' = exp(g_t) S_{t-1}, S_t = S' + beta_t k_t (v_t - S'^T k_t)^T, o_t = S_t^T q_t.

        Queries and keys (batch, heads, length, key_dim) are brought to unit length first; v is
        (batch, heads, length, value_dim); the log-decay g < 0 and beta in [0, 1) are
        (batch, heads, length). The output has the shape of v.
        """
        q = q * torch.rsqrt(q.square().sum(dim=-1, keepdim=True) + self.eps)
        k = k * torch.rsqrt(k.square().sum(dim=-1, keepdim=True) + self.eps)
        state = v.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
        outputs = []
        for t in range(q.shape[2]):
            key = k[:, :, t].unsqueeze(-1)
            state = g[:, :, t, None, None].exp() * state
            predicted = (key * state).sum(dim=-2)
            correction = beta[:, :, t].unsqueeze(-1) * (v[:, :, t] - predicted)
            state = state + key * correction.unsqueeze(-2)
            outputs.append((q[:, :, t].unsqueeze(-1) * state).sum(dim=-2))
        return torch.stack(outputs, dim=2)


def get_inputs():
    q = torch.randn(batch_size, num_heads, length, key_dim)
    k = torch.randn(batch_size, num_heads, length, key_dim)
    v = torch.randn(batch_size, num_heads, length, value_dim)
    g = F.logsigmoid(torch.randn(batch_size, num_heads, length))
    beta = torch.rand(batch_size, num_heads, length)
    return [q, k, v, g, beta]


def get_init_inputs():
    return [eps]
