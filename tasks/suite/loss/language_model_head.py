"""Projection to the vocabulary and the mean cross entropy of the next tokens."""

import torch
import torch.nn as nn
import torch.nn.functional as F

num_tokens = 512
dim = 512
vocabulary_size = 16384


class Model(nn.Module):
    def __init__(self, dim, vocabulary_size):
        super().__init__()
        self.head = nn.Linear(dim, vocabulary_size, bias=False)

    def forward(self, hidden, target):
        """Map hidden (num_tokens, dim) and target (num_tokens,) to the loss and the logits."""
        logits = self.head(hidden)
        return {"loss": F.cross_entropy(logits, target), "logits": logits}


def get_inputs():
    hidden = torch.randn(num_tokens, dim)
    target = torch.randint(0, vocabulary_size, (num_tokens,))
    return [hidden, target]


def get_init_inputs():
    return [dim, vocabulary_size]
