"""Softplus of a biased input: the step size of a state-space layer."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8
length = 1024
dim = 2048


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return F.softplus(x + self.bias)


def get_inputs():
    return [torch.randn(batch_size, length, dim)]


def get_init_inputs():
    return [dim]
