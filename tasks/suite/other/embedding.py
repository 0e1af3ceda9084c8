"""Token embedding plus a learned embedding of the position."""

import torch
import torch.nn as nn

batch_size = 8
length = 1024
vocabulary_size = 32000
dim = 512


class Model(nn.Module):
    def __init__(self, vocabulary_size, length, dim):
        super().__init__()
        self.token = nn.Embedding(vocabulary_size, dim)
        self.position = nn.Embedding(length, dim)

    def forward(self, tokens):
        """Map tokens (batch, length) to (batch, length, dim)."""
        position = torch.arange(tokens.shape[1], device=tokens.device)
        return self.token(tokens) + self.position(position)


def get_inputs():
    return [torch.randint(0, vocabulary_size, (batch_size, length))]


def get_init_inputs():
    return [vocabulary_size, length, dim]
