"""Mamba-2's state-space duality: a matrix state per head that decays by one factor a step."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4
num_heads = 8
length = 256
key_dim = 64
value_dim = 64


class Model(nn.Module):
    def __init__(self, num_heads):
        super().__init__()
        self.log_decay = nn.Parameter(torch.arange(1.0, num_heads + 1).log())

    def forward(self, c, b, x, step):
        """Run S_t = exp(step_t A) S_{t-1} + step_t b_t x_t^T, A = -exp(log_decay), y_t = S_t^T c_t.

        The read map c and the write map b are (batch, heads, length, key_dim), x and the result are
        (batch, heads, length, value_dim), step > 0 is (batch, heads, length).
        """
        decay = -self.log_decay.exp()
        state = x.new_zeros(*b.shape[:2], b.shape[-1], x.shape[-1])
        outputs = []
        for t in range(x.shape[2]):
            written = step[:, :, t].unsqueeze(-1) * x[:, :, t]
            kept = torch.exp(step[:, :, t] * decay)[..., None, None]
            state = kept * state + b[:, :, t].unsqueeze(-1) * written.unsqueeze(-2)
            outputs.append((c[:, :, t].unsqueeze(-1) * state).sum(dim=-2))
        return torch.stack(outputs, dim=2)


def get_inputs():
    c = torch.randn(batch_size, num_heads, length, key_dim)
    b = torch.randn(batch_size, num_heads, length, key_dim)
    x = torch.randn(batch_size, num_heads, length, value_dim)
    step = F.softplus(torch.randn(batch_size, num_heads, length) - 2)
    return [c, b, x, step]


def get_init_inputs():
    return [num_heads]
