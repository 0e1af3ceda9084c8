"""The selective scan by C1 and C2, without `tl.dot`."""

import torch
import torch.nn as nn

from ..selective_scan import selective_scan


class ModelNew(nn.Module):
    def __init__(self, dim, state_size):
        super().__init__()
        decay = torch.arange(1, state_size + 1).log()
        self.log_decay = nn.Parameter(decay.repeat(dim, 1))
        self.skip = nn.Parameter(torch.ones(dim))

    def forward(self, x, step, b, c):
        rates = -self.log_decay.float().exp()
        return selective_scan(x, step, rates, b, c, self.skip, delta_softplus=False)
