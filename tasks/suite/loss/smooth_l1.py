"""Mean smooth L1 loss: quadratic near zero and linear beyond."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 4096
dim = 2048
beta = 0.5


class Model(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, prediction, target):
        return F.smooth_l1_loss(prediction, target, beta=self.beta)


def get_inputs():
    return [torch.randn(batch_size, dim), torch.randn(batch_size, dim)]


def get_init_inputs():
    return [beta]
