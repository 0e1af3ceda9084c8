"""Kullback-Leibler divergence of the target from the prediction, averaged over the batch."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 512
num_classes = 16384


class Model(nn.Module):
    def forward(self, log_prediction, target):
        """Map log-probabilities and probabilities (batch, num_classes) to a scalar."""
        return F.kl_div(log_prediction, target, reduction="batchmean")


def get_inputs():
    log_prediction = torch.randn(batch_size, num_classes).log_softmax(dim=-1)
    target = torch.randn(batch_size, num_classes).softmax(dim=-1)
    return [log_prediction, target]


def get_init_inputs():
    return []
