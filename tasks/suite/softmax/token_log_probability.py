"""Log-probability of each given token under its logits, as policy gradients need it."""

import torch
import torch.nn as nn

batch_size = 4
length = 256
vocabulary_size = 32000


class Model(nn.Module):
    def forward(self, logits, tokens):
        """Map logits (batch, length, vocabulary) and tokens (batch, length)."""
        log_probability = torch.log_softmax(logits, dim=-1)
        return log_probability.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def get_inputs():
    logits = torch.randn(batch_size, length, vocabulary_size)
    tokens = torch.randint(0, vocabulary_size, (batch_size, length))
    return [logits, tokens]


def get_init_inputs():
    return []
