"""Softmax over the vocabulary with one temperature for each request."""

import torch
import torch.nn as nn

num_requests = 256
vocabulary_size = 32000


class Model(nn.Module):
    def forward(self, logits, temperature):
        """Map logits (num_requests, vocabulary_size) and temperature (num_requests,)."""
        return torch.softmax(logits / temperature.unsqueeze(-1), dim=-1)


def get_inputs():
    logits = torch.randn(num_requests, vocabulary_size)
    temperature = torch.rand(num_requests) + 0.5
    return [logits, temperature]


def get_init_inputs():
    return []
