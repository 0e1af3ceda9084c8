"""The four differentiable operations, with random operands, and how far a kernel may be off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from lethe_env.gates.precision import Precision
from lethe_env.gates.rounding import Estimate, allowed, estimate
from lethe_env.kernels.fused_block import fused_block
from lethe_env.kernels.fused_block import reference as fused_reference
from lethe_env.kernels.mimo_scan import mimo_scan
from lethe_env.kernels.mimo_scan import reference as mimo_reference
from lethe_env.kernels.rotary_scan import reference as rotary_reference
from lethe_env.kernels.rotary_scan import rotary_scan
from lethe_env.kernels.schedule import Schedule
from lethe_env.kernels.selective_scan import reference as selective_reference
from lethe_env.kernels.selective_scan import selective_scan

EXACT = 1e-12
"""Two float64 forms of one operation may differ by this share of the largest result: some hundred
terms of at most a hundred times that size, each rounded to 2**-53 = 1.1e-16."""


@dataclass(frozen=True)
class Operation:
    """One operation: its kernel, its references, and the shapes of its operands."""

    kernel: Callable[..., Tensor]
    reference: ModuleType
    other_form: str
    """Name of the second, independent form in the reference."""
    operands: Callable[..., dict[str, Tensor]]
    """From sizes and a generator to operands by name, in float32."""
    small: tuple[int, ...]
    """Sizes after batch and length, odd and no powers of two."""
    output: str
    """The operand whose shape and dtype the output has, but for the taps in front."""

    def draw(self, batch: int, length: int, *sizes: int, seed: int = 0) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return self.operands(batch, length, *(sizes or self.small), generator=generator)


def _selective(b, length, d, n, *, generator):
    normal = Normal(generator)
    return {
        **{"u": normal(b, length, d), "delta": normal(b, length, d)},
        **{"A": -normal(d, n).exp(), "B": normal(b, length, n), "C": normal(b, length, n)},
        "D": normal(d),
    }


def _mimo(b, length, h, p, n, r, *, generator):
    normal = Normal(generator)
    return {
        **{"x": normal(b, length, h, p), "B": normal(b, length, r, h, n)},
        **{"C": normal(b, length, r, h, n), "delta": normal(b, length, h).sigmoid()},
        **{"alpha": normal(b, length, h).sigmoid(), "mix_in": normal(h, r, p)},
        "mix_out": normal(h, r, p),
    }


def _rotary(b, length, h, p, n, turning, *, generator):
    normal = Normal(generator)
    return {
        **{"x": normal(b, length, h, p), "B": normal(b, length, h, n)},
        **{"C": normal(b, length, h, n), "delta": normal(b, length, h).sigmoid()},
        **{"A": -normal(h).exp(), "phase": normal(b, length, h, turning)},
    }


def _fused(b, length, d, n, taps, *, generator):
    normal = Normal(generator)
    scan = _selective(b, length, d, n, generator=generator)
    del scan["u"]
    return {
        **{"x": normal(b, length + taps - 1, d), "conv_weight": normal(d, 1, taps)},
        **{"conv_bias": normal(d), **scan, "norm_weight": normal(d)},
    }


@dataclass(frozen=True)
class Normal:
    """Standard normal tensors from one generator."""

    generator: torch.Generator

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)


OPERATIONS = {
    "selective_scan": Operation(
        selective_scan, selective_reference, "closed_form", _selective, (37, 5), "u"
    ),
    "mimo_scan": Operation(mimo_scan, mimo_reference, "closed_form", _mimo, (3, 37, 5, 3), "x"),
    "rotary_scan": Operation(
        rotary_scan, rotary_reference, "complex_form", _rotary, (3, 37, 5, 2), "x"
    ),
    "fused_block": Operation(fused_block, fused_reference, "closed_form", _fused, (37, 5, 4), "x"),
}


def schedule(*, rows=32, columns=16, segment=1024, chunk=16, warps=2) -> Schedule:
    """Small chunks, so that short sequences have several; by default one segment."""
    return Schedule(rows, columns, segment, chunk, warps)


def results(
    operation: Operation, operands: dict[str, Tensor], plan: Schedule, seed: int = 1
) -> dict[str, Tensor]:
    """Output and gradients of the kernel, by name, for a random gradient of the output."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in operands.items()}
    y = operation.kernel(**leaves, schedule=plan)
    gradients = torch.autograd.grad(y, list(leaves.values()), weights(y, seed))
    return {"y": y.detach(), **dict(zip(leaves, gradients, strict=True))}


def output(operation: Operation, operands: dict[str, Tensor], plan: Schedule) -> Tensor:
    """Output of the kernel as it runs in training, with states kept."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in operands.items()}
    return operation.kernel(**leaves, schedule=plan).detach()


def weights(like: Tensor, seed: int = 1) -> Tensor:
    """The gradient that is given to an output."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator).to(like.dtype)


def truth(operation: Operation, operands: dict[str, Tensor], given: Tensor) -> Estimate:
    """Output and gradients of the reference, and how rounding in float32 scatters them.

    `given` is the gradient of the output, float64.
    """
    wide = {name: tensor.detach().double() for name, tensor in operands.items()}

    def run() -> list[Tensor]:
        leaves = [tensor.requires_grad_() for tensor in wide.values()]
        y = operation.reference.serial(*leaves)
        return [y, *torch.autograd.grad(y, leaves, given)]

    return estimate(run, Precision(dtype=torch.float32), samples=8)


def error_ratios(
    operation: Operation, operands: dict[str, Tensor], got: dict[str, Tensor], seed: int = 1
) -> dict[str, float]:
    """The largest error of each result over what is allowed there: above 1 is wrong.

    Inner arithmetic is charged in float32 whatever the operands' dtypes, and each result one
    rounding to its own dtype (`gates.rounding.allowed`).
    """
    expected = truth(operation, operands, weights(got["y"], seed).double())
    ratios = {}
    for (name, value), exact, deviation in zip(
        got.items(), expected.values, expected.deviation, strict=True
    ):
        room = allowed(exact, deviation, Precision(dtype=torch.float32), value.dtype)
        ratio = (value.double() - exact).abs() / room
        assert value.shape == exact.shape
        ratios[name] = float(torch.where(ratio.isnan(), torch.inf, ratio).max())
    return ratios
