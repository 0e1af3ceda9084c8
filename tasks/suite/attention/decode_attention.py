"""Attention of one new token over a cache that each sequence has filled to its own length."""

import torch
import torch.nn as nn

batch_size = 8
num_heads = 16
cache_length = 1024
head_dim = 64


class Model(nn.Module):
    def forward(self, q, k_cache, v_cache, lengths):
        """Map q (batch, heads, head_dim) to the same shape.

        The caches have the shape (batch, heads, cache_length, head_dim); of sequence b the
        first lengths[b] >= 1 positions are filled.
        """
        scores = (k_cache @ q.unsqueeze(-1)).squeeze(-1) * q.shape[-1] ** -0.5
        position = torch.arange(k_cache.shape[-2], device=q.device)
        empty = position >= lengths[:, None, None]
        weights = torch.softmax(scores.masked_fill(empty, float("-inf")), dim=-1)
        return (weights.unsqueeze(-2) @ v_cache).squeeze(-2)


def get_inputs():
    q = torch.randn(batch_size, num_heads, head_dim)
    k_cache = torch.randn(batch_size, num_heads, cache_length, head_dim)
    v_cache = torch.randn(batch_size, num_heads, cache_length, head_dim)
    lengths = torch.randint(1, cache_length + 1, (batch_size,))
    return [q, k_cache, v_cache, lengths]


def get_init_inputs():
    return []
