"""Cumulative sum over time, the middle dimension."""

import torch
import torch.nn as nn

batch_size = 8
length = 2048
dim = 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)


def get_inputs():
    return [torch.randn(batch_size, length, dim)]


def get_init_inputs():
    return []
