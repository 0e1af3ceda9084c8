"""Gated linear recurrence h_t = a_t * h_{t-1} + b_t, channel by channel."""

import torch
import torch.nn as nn

batch_size = 4
length = 512
dim = 1024


class Model(nn.Module):
    def forward(self, a, b):
        """Map gates a in [0, 1) and values b (batch, length, dim) to all states."""
        state = torch.zeros_like(b[:, 0])
        states = []
        for t in range(b.shape[1]):
            state = a[:, t] * state + b[:, t]
            states.append(state)
        return torch.stack(states, dim=1)


def get_inputs():
    a = torch.rand(batch_size, length, dim)
    b = torch.randn(batch_size, length, dim)
    return [a, b]


def get_init_inputs():
    return []
