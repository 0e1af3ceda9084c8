"""Rotary position embedding, rotating the two halves of each head against each other."""

import torch
import torch.nn as nn

batch_size = 4
num_heads = 16
length = 2048
half_dim = 64


class Model(nn.Module):
    def forward(self, x, cos, sin):
        """Rotate x (batch, heads, length, 2 * half_dim) by cos and sin (length, half_dim)."""
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def get_inputs():
    x = torch.randn(batch_size, num_heads, length, 2 * half_dim)
    frequency = 10000.0 ** (-torch.arange(half_dim) / half_dim)
    angle = torch.outer(torch.arange(length), frequency)
    return [x, angle.cos(), angle.sin()]


def get_init_inputs():
    return []
