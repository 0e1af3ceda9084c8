"""Mean hinge loss against targets of plus and minus one."""

import torch
import torch.nn as nn

batch_size = 4096
dim = 2048


class Model(nn.Module):
    def forward(self, prediction, target):
        return torch.relu(1 - prediction * target).mean()


def get_inputs():
    prediction = torch.randn(batch_size, dim)
    target = torch.randint(0, 2, (batch_size, dim)) * 2.0 - 1.0
    return [prediction, target]


def get_init_inputs():
    return []
