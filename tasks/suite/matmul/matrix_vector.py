"""Product of a matrix with a vector, as in decoding one token."""

import torch
import torch.nn as nn

rows = 4096
columns = 8192


class Model(nn.Module):
    def forward(self, matrix, vector):
        return torch.mv(matrix, vector)


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(columns)]


def get_init_inputs():
    return []
