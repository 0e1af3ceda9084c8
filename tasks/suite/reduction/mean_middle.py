"""Mean over the middle dimension."""

import torch
import torch.nn as nn

batch_size = 16
length = 1024
dim = 1024


class Model(nn.Module):
    def forward(self, x):
        return x.mean(dim=1)


def get_inputs():
    return [torch.randn(batch_size, length, dim)]


def get_init_inputs():
    return []
