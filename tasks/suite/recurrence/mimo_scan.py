"""Multi-input multi-output state space: every rank writes to and reads from one state per head."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 2
length = 256
num_heads = 8
head_dim = 64
state_size = 32
rank = 4


class Model(nn.Module):
    def __init__(self, num_heads, rank, head_dim):
        super().__init__()
        self.mix_in = nn.Parameter(torch.ones(num_heads, rank, head_dim) / rank)
        self.mix_out = nn.Parameter(torch.ones(num_heads, rank, head_dim) / rank)

    def forward(self, x, b, c, step, decay):
        """Run S_t = decay_t S_{t-1} + step_t sum_r (x_t * mix_in_r) b_{t,r}^T per head.

        Returns y_t = sum_r mix_out_r * (S_t c_{t,r}) in the shape of x, which is
        (batch, length, heads, head_dim). The maps b and c are (batch, length, rank, heads,
        state_size); step > 0 and decay in [0, 1) are (batch, length, heads).
        """
        state = x.new_zeros(x.shape[0], *x.shape[2:], b.shape[-1])
        outputs = []
        for t in range(x.shape[1]):
            mixed = x[:, t].unsqueeze(2) * self.mix_in
            written = (mixed.unsqueeze(-1) * b[:, t].transpose(1, 2).unsqueeze(-2)).sum(dim=2)
            state = decay[:, t, :, None, None] * state + step[:, t, :, None, None] * written
            read = (state.unsqueeze(2) * c[:, t].transpose(1, 2).unsqueeze(-2)).sum(dim=-1)
            outputs.append((self.mix_out * read).sum(dim=2))
        return torch.stack(outputs, dim=1)


def get_inputs():
    x = torch.randn(batch_size, length, num_heads, head_dim)
    b = torch.randn(batch_size, length, rank, num_heads, state_size)
    c = torch.randn(batch_size, length, rank, num_heads, state_size)
    step = F.softplus(torch.randn(batch_size, length, num_heads) - 2)
    decay = torch.rand(batch_size, length, num_heads)
    return [x, b, c, step, decay]


def get_init_inputs():
    return [num_heads, rank, head_dim]
