"""The rotary scan by C4, without `tl.dot`."""

import torch
import torch.nn as nn

from ..rotary_scan import rotary_scan


class ModelNew(nn.Module):
    def __init__(self, num_heads):
        super().__init__()
        self.log_decay = nn.Parameter(torch.arange(1, num_heads + 1).log())

    def forward(self, x, b, c, step, phase):
        return rotary_scan(x, b, c, step, -self.log_decay.float().exp(), phase)
