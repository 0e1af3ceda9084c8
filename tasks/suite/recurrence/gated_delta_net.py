"""Gated delta net 2: a delta rule that decays, erases and writes channel by channel."""

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

    def forward(self, q, k, v, g, b, w):
        """Run S' = diag(exp(g_t)) S_{t-1}, S_t = S' + k_t (w_t * v_t - S'^T (b_t * k_t))^T.

        Returns o_t = S_t^T q_t in the shape of v. Queries and keys (batch, heads, length, key_dim)
        are brought to unit length first; the log-decay g < 0 and the erase gate b in [0, 1) have
        their shape; v and the write gate w in [0, 1) are (batch, heads, length, value_dim).
        """
        q = q * torch.rsqrt(q.square().sum(dim=-1, keepdim=True) + self.eps)
        k = k * torch.rsqrt(k.square().sum(dim=-1, keepdim=True) + self.eps)
        state = v.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
        outputs = []
        for t in range(q.shape[2]):
            state = g[:, :, t].exp().unsqueeze(-1) * state
            erased = ((b[:, :, t] * k[:, :, t]).unsqueeze(-1) * state).sum(dim=-2)
            update = w[:, :, t] * v[:, :, t] - erased
            state = state + k[:, :, t].unsqueeze(-1) * update.unsqueeze(-2)
            outputs.append((q[:, :, t].unsqueeze(-1) * state).sum(dim=-2))
        return torch.stack(outputs, dim=2)


def get_inputs():
    q = torch.randn(batch_size, num_heads, length, key_dim)
    k = torch.randn(batch_size, num_heads, length, key_dim)
    v = torch.randn(batch_size, num_heads, length, value_dim)
    g = F.logsigmoid(torch.randn(batch_size, num_heads, length, key_dim))
    b = torch.rand(batch_size, num_heads, length, key_dim)
    w = torch.rand(batch_size, num_heads, length, value_dim)
    return [q, k, v, g, b, w]


def get_init_inputs():
    return [eps]
