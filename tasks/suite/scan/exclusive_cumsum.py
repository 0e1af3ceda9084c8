"""Cumulative sum of the values before each position."""

import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 2048
width = 8192


class Model(nn.Module):
    def forward(self, x):
        return F.pad(x[..., :-1], (1, 0)).cumsum(-1)


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return []
