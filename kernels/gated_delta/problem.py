"""Random problems for the tests and the ladder."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Problem:
    """Inputs and cotangents of one call, laid out as in `reference.py`, gates in full."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    b: Tensor
    w: Tensor
    initial_state: Tensor
    grad_output: Tensor
    grad_final_state: Tensor
    scale: float

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """q, k, v, g, b, w."""
        return self.q, self.k, self.v, self.g, self.b, self.w

    @property
    def cotangents(self) -> tuple[Tensor, Tensor]:
        """Gradients of the outputs and of the final state."""
        return self.grad_output, self.grad_final_state

    def to(self, dtype: torch.dtype) -> Problem:
        """The same problem, rounded to another dtype."""
        tensors = {
            field.name: value.to(dtype)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return replace(self, **tensors)


def draw_problem(
    length: int,
    key_dim: int,
    value_dim: int,
    *,
    batch: int = 1,
    heads: int = 1,
    strongest_decay: float = 0.3,
    seed: int = 0,
) -> Problem:
    """Draw a problem in float64.

    Keys have unit length and gates lie in [0, 1): the state stays bounded, as it does for
    b‖k‖² ≤ 2 only. Log decays are uniform in [−strongest_decay, 0].
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    tokens, state = (batch, length, heads), (batch, heads, key_dim, value_dim)
    return Problem(
        q=torch.nn.functional.normalize(normal(*tokens, key_dim), dim=-1),
        k=torch.nn.functional.normalize(normal(*tokens, key_dim), dim=-1),
        v=normal(*tokens, value_dim),
        g=-strongest_decay * uniform(*tokens, key_dim),
        b=uniform(*tokens, key_dim),
        w=uniform(*tokens, value_dim),
        initial_state=0.3 * normal(*state),
        grad_output=normal(*tokens, value_dim),
        grad_final_state=0.3 * normal(*state),
        scale=key_dim**-0.5,
    )


def worst_relative_error(result: Tensor, truth: Tensor) -> float:
    """Largest error over largest truth: one figure for a tensor, as papers report it."""
    scale = truth.abs().max().clamp_min(torch.finfo(torch.float64).tiny)
    return ((result.double() - truth).abs().max() / scale).item()
