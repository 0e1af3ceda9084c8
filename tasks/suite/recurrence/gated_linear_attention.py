"""Gated linear attention: S_t = diag(exp(g_t)) S_{t-1} + k_t v_t^T, o_t = S_t^T q_t."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4
num_heads = 8
length = 256
key_dim = 64
value_dim = 64


class Model(nn.Module):
    def forward(self, q, k, v, g):
        """Map q, k, log-decays g < 0 (batch, heads, length, key_dim) and v (…, value_dim).

        The output has the shape of v.
        """
        q = q * q.shape[-1] ** -0.5
        state = v.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
        outputs = []
        for t in range(q.shape[2]):
            written = k[:, :, t].unsqueeze(-1) * v[:, :, t].unsqueeze(-2)
            state = g[:, :, t].exp().unsqueeze(-1) * state + written
            outputs.append((q[:, :, t].unsqueeze(-1) * state).sum(dim=-2))
        return torch.stack(outputs, dim=2)


def get_inputs():
    q = torch.randn(batch_size, num_heads, length, key_dim)
    k = torch.randn(batch_size, num_heads, length, key_dim)
    v = torch.randn(batch_size, num_heads, length, value_dim)
    g = F.logsigmoid(torch.randn(batch_size, num_heads, length, key_dim))
    return [q, k, v, g]


def get_init_inputs():
    return []
