"""Inner part of a Mamba block: causal convolution, SiLU, selective scan, RMS norm."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 2
length = 256
dim = 1024
state_size = 16
kernel_size = 4
eps = 1e-5


class Model(nn.Module):
    def __init__(self, dim, state_size, kernel_size, eps):
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, kernel_size, groups=dim)
        decay = torch.arange(1, state_size + 1).log()
        self.log_decay = nn.Parameter(decay.repeat(dim, 1))
        self.skip = nn.Parameter(torch.ones(dim))
        self.norm_weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x, delta, b, c):
        """Map x and delta (batch, length, dim) to outputs of the same shape.

        The step is softplus(delta); the input map b and the output map c are
        (batch, length, state_size).
        """
        taps = self.conv.kernel_size[0]
        x = F.silu(self.conv(F.pad(x.transpose(1, 2), (taps - 1, 0)))).transpose(1, 2)
        step = F.softplus(delta)
        decay = -self.log_decay.exp()
        state = x.new_zeros(x.shape[0], *decay.shape)
        outputs = []
        for t in range(x.shape[1]):
            written = (step[:, t] * x[:, t]).unsqueeze(-1) * b[:, t].unsqueeze(1)
            state = torch.exp(step[:, t].unsqueeze(-1) * decay) * state + written
            outputs.append((state * c[:, t].unsqueeze(1)).sum(dim=-1))
        y = torch.stack(outputs, dim=1) + self.skip * x
        return y * torch.rsqrt(y.square().mean(dim=-1, keepdim=True) + self.eps) * self.norm_weight


def get_inputs():
    x = torch.randn(batch_size, length, dim)
    delta = torch.randn(batch_size, length, dim) - 2
    b = torch.randn(batch_size, length, state_size)
    c = torch.randn(batch_size, length, state_size)
    return [x, delta, b, c]


def get_init_inputs():
    return [dim, state_size, kernel_size, eps]
