"""The inner part of a Mamba block by C5 and C6, without `tl.dot`."""

import torch
import torch.nn as nn

from ..fused_block import fused_block


class ModelNew(nn.Module):
    def __init__(self, dim, state_size, kernel_size, eps):
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, kernel_size, groups=dim)
        decay = torch.arange(1, state_size + 1).log()
        self.log_decay = nn.Parameter(decay.repeat(dim, 1))
        self.skip = nn.Parameter(torch.ones(dim))
        self.norm_weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x, delta, b, c):
        """The library wants the tokens before the first output in front."""
        weight, bias = self.conv.weight, self.conv.bias
        x = nn.functional.pad(x, (0, 0, weight.shape[-1] - 1, 0))
        rates = -self.log_decay.float().exp()
        scan = (delta, rates, b, c, self.skip)
        return fused_block(x, weight, bias, *scan, self.norm_weight, eps=self.eps)
