"""Causal linear attention without normaliser: S_t = S_{t-1} + k_t v_t^T, o_t = S_t^T q_t."""

import torch
import torch.nn as nn

batch_size = 4
num_heads = 8
length = 512
key_dim = 64
value_dim = 64


class Model(nn.Module):
    def forward(self, q, k, v):
        """Map q, k (batch, heads, length, key_dim) and v (…, value_dim) to the shape of v."""
        q = q * q.shape[-1] ** -0.5
        state = v.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
        outputs = []
        for t in range(q.shape[2]):
            state = state + k[:, :, t].unsqueeze(-1) * v[:, :, t].unsqueeze(-2)
            outputs.append((q[:, :, t].unsqueeze(-1) * state).sum(dim=-2))
        return torch.stack(outputs, dim=2)


def get_inputs():
    q = torch.randn(batch_size, num_heads, length, key_dim)
    k = torch.randn(batch_size, num_heads, length, key_dim)
    v = torch.randn(batch_size, num_heads, length, value_dim)
    return [q, k, v]


def get_init_inputs():
    return []
