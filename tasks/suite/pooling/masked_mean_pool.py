"""Mean of the token embeddings that a boolean mask admits."""

import torch
import torch.nn as nn

batch_size = 32
length = 512
dim = 1024


class Model(nn.Module):
    def forward(self, x, mask):
        """Map x (batch, length, dim) under mask (batch, length) to (batch, dim)."""
        total = x.masked_fill(~mask.unsqueeze(-1), 0).sum(dim=1)
        return total / mask.sum(dim=1, keepdim=True)


def get_inputs():
    x = torch.randn(batch_size, length, dim)
    mask = torch.rand(batch_size, length) < 0.75
    mask[:, 0] = True  # every sequence holds something
    return [x, mask]


def get_init_inputs():
    return []
