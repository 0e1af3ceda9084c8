"""Members of the family as modules of the suite's tasks, with native gradients.

Shapes are the tasks' own: (batch, heads, length, width), where the library wants heads third.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..operation import gated_delta
from ..unit_length import unit_length
from .backward_pass import natively


def _mixed(*tensors: Tensor, w: Tensor | None = None, scale: float | None = None) -> Tensor:
    inputs = (x.transpose(1, 2) for x in tensors)
    output, _ = gated_delta(*inputs, w=w, scale=scale, backward=natively)
    return output.transpose(1, 2)


class LinearAttention(nn.Module):
    """`recurrence/linear_attention`."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _mixed(q, k, v)


class GatedLinearAttention(nn.Module):
    """`recurrence/gated_linear_attention`."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
        return _mixed(q, k, v, g)


class StateSpaceDuality(nn.Module):
    """`recurrence/state_space_duality`; a step is a write gate as well."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.log_decay = nn.Parameter(torch.arange(1.0, num_heads + 1).log())

    def forward(self, c: Tensor, b: Tensor, x: Tensor, step: Tensor) -> Tensor:
        decay = -self.log_decay.float().exp()[:, None]
        return _mixed(c, b, x, step.float() * decay, w=step.transpose(1, 2), scale=1.0)


class KimiDeltaAttention(nn.Module):
    """`recurrence/kimi_delta_attention`."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
        q, k = unit_length(q, self.eps), unit_length(k, self.eps)
        return _mixed(q, k, v, g, beta, w=beta.transpose(1, 2), scale=1.0)


class GatedDeltaNet(nn.Module):
    """`recurrence/gated_delta_net`."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor, w: Tensor) -> Tensor:
        q, k = unit_length(q, self.eps), unit_length(k, self.eps)
        return _mixed(q, k, v, g, b, w=w.transpose(1, 2), scale=1.0)


MODULES: dict[str, tuple[str, type[nn.Module]]] = {
    "LA": ("recurrence/linear_attention", LinearAttention),
    "GLA": ("recurrence/gated_linear_attention", GatedLinearAttention),
    "SSD": ("recurrence/state_space_duality", StateSpaceDuality),
    "KDA": ("recurrence/kimi_delta_attention", KimiDeltaAttention),
    "GDN": ("recurrence/gated_delta_net", GatedDeltaNet),
}
"""By the member's name: the task, and its module."""
