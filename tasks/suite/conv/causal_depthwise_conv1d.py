"""Causal convolution of each channel with its own filter, then silu: Mamba's short convolution."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4
dim = 2048
length = 2048
kernel_size = 4


class Model(nn.Module):
    def __init__(self, dim, kernel_size):
        super().__init__()
        self.padding = kernel_size - 1
        self.conv = nn.Conv1d(dim, dim, kernel_size, groups=dim)

    def forward(self, x):
        """Map x (batch, dim, length) to the same shape."""
        return F.silu(self.conv(F.pad(x, (self.padding, 0))))


def get_inputs():
    return [torch.randn(batch_size, dim, length)]


def get_init_inputs():
    return [dim, kernel_size]
