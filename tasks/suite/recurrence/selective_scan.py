"""Mamba's selective scan: a diagonal state space whose step, input and output maps vary in time."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4
length = 512
dim = 1024
state_size = 16


class Model(nn.Module):
    def __init__(self, dim, state_size):
        super().__init__()
        decay = torch.arange(1, state_size + 1).log()
        self.log_decay = nn.Parameter(decay.repeat(dim, 1))
        self.skip = nn.Parameter(torch.ones(dim))

    def forward(self, x, step, b, c):
        """Map x and step > 0 (batch, length, dim) to outputs of the same shape.

        The input map b and the output map c have the shape (batch, length, state_size).
        """
        decay = -self.log_decay.exp()
        state = x.new_zeros(x.shape[0], *decay.shape)
        outputs = []
        for t in range(x.shape[1]):
            written = (step[:, t] * x[:, t]).unsqueeze(-1) * b[:, t].unsqueeze(1)
            state = torch.exp(step[:, t].unsqueeze(-1) * decay) * state + written
            outputs.append((state * c[:, t].unsqueeze(1)).sum(dim=-1))
        return torch.stack(outputs, dim=1) + self.skip * x


def get_inputs():
    x = torch.randn(batch_size, length, dim)
    step = F.softplus(torch.randn(batch_size, length, dim) - 2)
    b = torch.randn(batch_size, length, state_size)
    c = torch.randn(batch_size, length, state_size)
    return [x, step, b, c]


def get_init_inputs():
    return [dim, state_size]
