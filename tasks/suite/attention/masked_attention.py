"""Attention over the keys that a boolean mask admits."""

import torch
import torch.nn as nn

batch_size = 4
num_heads = 16
query_length = 512
key_length = 512
head_dim = 64


class Model(nn.Module):
    def forward(self, q, k, v, mask):
        """Attend from q to k and v (batch, heads, length, head_dim) where mask is true.

        The mask (batch, 1, query_length, key_length) is shared by the heads.
        """
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v


def get_inputs():
    q = torch.randn(batch_size, num_heads, query_length, head_dim)
    k = torch.randn(batch_size, num_heads, key_length, head_dim)
    v = torch.randn(batch_size, num_heads, key_length, head_dim)
    mask = torch.rand(batch_size, 1, query_length, key_length) < 0.75
    mask[..., 0] = True  # every query sees something
    return [q, k, v, mask]


def get_init_inputs():
    return []
