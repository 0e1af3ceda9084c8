"""Max pooling of an image over overlapping 3 by 3 windows with stride 2."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
channels = 64
height = 128
width = 128


class Model(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, kernel_size=3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return []
