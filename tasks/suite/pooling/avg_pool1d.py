"""Average pooling over overlapping windows, counting the padding."""

import torch
import torch.nn as nn

batch_size = 16
channels = 256
length = 4096
kernel_size = 8
stride = 4
padding = 2


class Model(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.pool = nn.AvgPool1d(kernel_size, stride=stride, padding=padding)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [kernel_size, stride, padding]
