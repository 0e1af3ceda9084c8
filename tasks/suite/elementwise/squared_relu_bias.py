"""Squared rectified linear unit of a biased input."""

import torch
import torch.nn as nn

num_tokens = 8192
dim = 2048


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return torch.relu(x + self.bias).square()


def get_inputs():
    return [torch.randn(num_tokens, dim)]


def get_init_inputs():
    return [dim]
