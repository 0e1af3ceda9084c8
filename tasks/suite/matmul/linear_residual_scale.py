"""Linear projection without bias, scaled per channel and added to the residual stream."""

import torch
import torch.nn as nn

num_tokens = 2048
in_features = 2048
out_features = 1024


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.scale = nn.Parameter(torch.full((out_features,), 0.1))

    def forward(self, x, residual):
        return residual + self.scale * self.linear(x)


def get_inputs():
    return [torch.randn(num_tokens, in_features), torch.randn(num_tokens, out_features)]


def get_init_inputs():
    return [in_features, out_features]
