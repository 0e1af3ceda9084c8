"""Product of a transposed matrix with a matrix: the weight gradient of a linear layer."""

import torch
import torch.nn as nn

M = 1024
K = 4096
N = 1024


class Model(nn.Module):
    def forward(self, a, b):
        """Map a (K, M) and b (K, N) to (M, N)."""
        return torch.matmul(a.T, b)


def get_inputs():
    return [torch.randn(K, M), torch.randn(K, N)]


def get_init_inputs():
    return []
