"""Members of the family as modules of the suite's tasks, with native gradients.

Shapes are the tasks' own: (batch, heads, length, width), where the library wants heads third.
"""

from __future__ import annotations

import importlib
import linecache
import sys

import torch
from torch import Tensor, nn

from ...cute_dsl import load
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


def gradients_of(module: type[nn.Module]) -> type[nn.Module]:
    """A module that is called with the inputs and the output's gradient of another.

    Its outputs are the gradients of those inputs, then of the parameters. All are float16.
    """

    class Gradients(module):  # type: ignore[misc, valid-type]
        def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
            if other := next((x.dtype for x in arguments if x.dtype != torch.float16), None):
                raise TypeError(f"native gradients are for float16, not {other}")
            *inputs, grad_output = arguments
            with torch.enable_grad():
                leaves = [tensor.detach().requires_grad_() for tensor in inputs]
                output = super().forward(*leaves)
                return torch.autograd.grad(output, [*leaves, *self.parameters()], grad_output)

    return Gradients


def prepare() -> None:
    """Import what the modules compile, and read its source text.

    A process that is forked afterwards can compile it, even if it may not read it any more.
    """
    load()
    stages = "reverse_state_scan", "transform_adjoint", "token_gradients"
    for stage in stages:
        importlib.import_module(f".{stage}", __package__)
    for module in list(sys.modules.values()):
        if getattr(module, "__package__", "") == __package__:
            linecache.getlines(module.__file__)
