"""Causal attention in which a group of query heads shares one key and value head."""

import torch
import torch.nn as nn

batch_size = 4
num_key_heads = 4
group_size = 4
length = 512
head_dim = 64


class Model(nn.Module):
    def __init__(self, group_size):
        super().__init__()
        self.group_size = group_size

    def forward(self, q, k, v):
        """Attend from q (batch, key_heads * group_size, length, head_dim).

        Keys and values have the shape (batch, key_heads, length, head_dim).
        """
        length = q.shape[-2]
        k = k.repeat_interleave(self.group_size, dim=1)
        v = v.repeat_interleave(self.group_size, dim=1)
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        return torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ v


def get_inputs():
    q = torch.randn(batch_size, num_key_heads * group_size, length, head_dim)
    k = torch.randn(batch_size, num_key_heads, length, head_dim)
    v = torch.randn(batch_size, num_key_heads, length, head_dim)
    return [q, k, v]


def get_init_inputs():
    return [group_size]
