"""Op classes by what a reference dispatches, whatever it is called."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from lethe_env.audit.classification import Trace, op_class_of
from lethe_env.tasks.model import OP_CLASSES

X = torch.rand(2, 4, 8)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = nn.Linear(8, 8)

    def forward(self, x):
        return self.step(torch.tanh(self.step(x)))


def attend(x):
    weights = functional.softmax(x @ x.transpose(1, 2) / 3.0, dim=-1)
    return functional.dropout(weights, 0.1) @ x


def norm_by_hand(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Named(nn.Module):
    """A ReLU with names that say otherwise."""

    def forward(self, softmax_attention_conv):
        return torch.relu(softmax_attention_conv)


@pytest.mark.parametrize(
    ("expected", "module"),
    [
        ("attention", attend),
        ("attention", lambda x: functional.scaled_dot_product_attention(x[None], x[None], x[None])),
        ("attention", nn.MultiheadAttention(8, 2, batch_first=True).eval()),
        ("recurrence", nn.LSTM(8, 4, batch_first=True)),
        ("recurrence", nn.GRU(8, 4, batch_first=True)),
        ("recurrence", Twice()),
        ("conv", nn.Sequential(nn.Conv1d(4, 3, 3), nn.ReLU(), nn.BatchNorm1d(3))),
        ("loss", lambda x: functional.cross_entropy(x[0], torch.tensor([0, 1, 2, 3]))),
        ("loss", lambda x: functional.smooth_l1_loss(x, x)),
        ("pooling", nn.MaxPool1d(2)),
        ("scan", lambda x: torch.cumsum(x.flip(1), 1)),
        ("norm", nn.GroupNorm(2, 4)),
        ("norm", norm_by_hand),
        ("norm", lambda x: functional.normalize(x, dim=-1)),
        ("softmax", lambda x: functional.log_softmax(x, -1)),
        ("softmax", lambda x: functional.softmax(x @ x.transpose(1, 2), -1)),
        ("matmul", nn.Linear(8, 3)),
        ("matmul", lambda x: torch.einsum("bij,bkj->bik", x, x)),
        ("reduction", lambda x: x.amax(-1)),
        ("reduction", lambda x: x.std(-1)),
        ("elementwise", nn.GELU()),
        ("elementwise", Named()),
        ("other", lambda x: x.transpose(0, 1).contiguous()),
    ],
)
def test_the_most_characteristic_operation_is_the_class(expected, module):
    owner = module if isinstance(module, nn.Module) else nn.Module()
    inputs = (X, X, X) if isinstance(module, nn.MultiheadAttention) else (X,)
    with torch.no_grad(), Trace(owner) as trace:
        module(*inputs)
    assert op_class_of(trace.operations) == expected
    assert expected in OP_CLASSES


def test_a_softmax_beside_a_product_is_no_attention():
    with torch.no_grad(), Trace(nn.Module()) as trace:
        functional.softmax(X, -1)
        torch.bmm(X, X.transpose(1, 2))
    assert op_class_of(trace.operations) == "softmax"
