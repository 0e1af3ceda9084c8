"""SwiGLU: one half of the channels gates the other half."""

import torch
import torch.nn as nn
import torch.nn.functional as F

num_tokens = 2048
hidden_dim = 5632


class Model(nn.Module):
    def forward(self, gate_and_up):
        """Map (num_tokens, 2 * hidden_dim) to (num_tokens, hidden_dim)."""
        gate, up = gate_and_up.chunk(2, dim=-1)
        return F.silu(gate) * up


def get_inputs():
    return [torch.randn(num_tokens, 2 * hidden_dim)]


def get_init_inputs():
    return []
