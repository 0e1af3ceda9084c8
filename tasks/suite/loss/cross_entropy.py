"""Mean cross entropy of logits against class indices."""

import torch
import torch.nn as nn
import torch.nn.functional as F

num_tokens = 512
num_classes = 32000


class Model(nn.Module):
    def forward(self, logits, target):
        """Map logits (num_tokens, num_classes) and target (num_tokens,) to a scalar."""
        return F.cross_entropy(logits, target)


def get_inputs():
    logits = torch.randn(num_tokens, num_classes)
    target = torch.randint(0, num_classes, (num_tokens,))
    return [logits, target]


def get_init_inputs():
    return []
