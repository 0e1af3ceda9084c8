"""Transposed copy of the last two dimensions."""

import torch
import torch.nn as nn

batch_size = 4
rows = 2048
columns = 2048


class Model(nn.Module):
    def forward(self, x):
        return x.transpose(-2, -1).contiguous()


def get_inputs():
    return [torch.randn(batch_size, rows, columns)]


def get_init_inputs():
    return []
