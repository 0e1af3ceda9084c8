"""Layer normalisation over the last dimension."""

import torch
import torch.nn as nn

num_tokens = 8192
dim = 2048


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(num_tokens, dim)]


def get_init_inputs():
    return [dim]
