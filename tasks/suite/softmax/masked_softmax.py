"""Softmax over the positions that a boolean mask admits."""

import torch
import torch.nn as nn

rows = 4096
width = 2048


class Model(nn.Module):
    def forward(self, scores, mask):
        """Map scores (rows, width) under mask (rows, width), true where admitted."""
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)


def get_inputs():
    scores = torch.randn(rows, width)
    mask = torch.rand(rows, width) < 0.75
    mask[:, 0] = True  # every row admits something
    return [scores, mask]


def get_init_inputs():
    return []
