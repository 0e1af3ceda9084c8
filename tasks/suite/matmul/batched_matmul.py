"""Batched matrix product."""

import torch
import torch.nn as nn

batch_size = 32
M = 256
K = 512
N = 384


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(batch_size, M, K), torch.randn(batch_size, K, N)]


def get_init_inputs():
    return []
