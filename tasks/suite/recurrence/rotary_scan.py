"""Complex-valued state space as rotary embeddings: angles add up along time and turn both maps."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4
length = 256
num_heads = 8
head_dim = 64
turning = 16


class Model(nn.Module):
    def __init__(self, num_heads):
        super().__init__()
        self.log_decay = nn.Parameter(torch.arange(1, num_heads + 1).log())

    def forward(self, x, b, c, step, phase):
        """Run S_t = exp(-step_t exp(log_decay)) S_{t-1} + step_t x_t b'_t^T and y_t = S_t c'_t.

        The maps b and c (batch, length, heads, 2 turning) are turned pair by pair, element 2i with
        element 2i + 1, by the angles sum_{s<=t} pi tanh(phase_s) step_s. The inputs x are
        (batch, length, heads, head_dim), step > 0 is (batch, length, heads), and phase is
        (batch, length, heads, turning). The output has the shape of x.
        """
        angle = torch.cumsum(math.pi * torch.tanh(phase) * step.unsqueeze(-1), dim=1)
        cosine, sine = angle.cos(), angle.sin()
        b = turned(b, cosine, sine)
        c = turned(c, cosine, sine)
        decay = torch.exp(-step * self.log_decay.exp())
        state = x.new_zeros(*x[:, 0].shape, b.shape[-1])
        outputs = []
        for t in range(x.shape[1]):
            written = (step[:, t].unsqueeze(-1) * x[:, t]).unsqueeze(-1) * b[:, t].unsqueeze(-2)
            state = decay[:, t, :, None, None] * state + written
            outputs.append((state * c[:, t].unsqueeze(-2)).sum(dim=-1))
        return torch.stack(outputs, dim=1)


def turned(maps, cosine, sine):
    left, right = maps[..., 0::2], maps[..., 1::2]
    pairs = [left * cosine - right * sine, left * sine + right * cosine]
    return torch.stack(pairs, dim=-1).flatten(-2)


def get_inputs():
    x = torch.randn(batch_size, length, num_heads, head_dim)
    b = torch.randn(batch_size, length, num_heads, 2 * turning)
    c = torch.randn(batch_size, length, num_heads, 2 * turning)
    step = F.softplus(torch.randn(batch_size, length, num_heads) - 2)
    phase = torch.randn(batch_size, length, num_heads, turning)
    return [x, b, c, step, phase]


def get_init_inputs():
    return [num_heads]
