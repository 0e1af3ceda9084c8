"""The rounding model: how far a correct kernel may be from the truth, per element.

The truth is the reference in float64. The reference is then run again a few times while every
operation adds an error of the size it commits in the probe's precision, and the spread of the
results is the deviation that rounding alone explains. No tolerance is chosen anywhere: an
ill-conditioned result gets the room it needs, a well-conditioned one gets none to spare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..tasks.randomness import seed_generators
from .default_epsilon import DefaultEpsilon
from .error_sizes import ErrorSizes
from .float64 import WIDER, Float64Mode
from .perturbation import RoundingMode
from .precision import DEVIATIONS, Precision, smallest_subnormal

__all__ = ["Estimate", "Float64Mode", "Precision", "allowed", "estimate"]

Run = Callable[[], Sequence[Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The truth of one reference call and the deviation that rounding explains."""

    values: tuple[Tensor, ...]
    """The truth, one tensor per result: float64, complex128, integer or bool."""
    deviation: tuple[Tensor, ...]
    """Root mean square of the modelled error, float64, in the shapes of `values`.

    At integer and bool results 1 where rounding may change the value, else 0. Zero where the
    truth is not finite; infinite where the truth is finite and rounding may make it not so.
    """
    reduction_terms: int
    """Terms of the longest reduction met, 1 if there was none."""
    draws_random: bool
    """Whether the reference drew random numbers."""
    unmodelled: tuple[str, ...]
    """Operations not in the table; they were given one unit of relative error."""


def estimate(run: Run, precision: Precision, *, samples: int = 16, seed: int = 0) -> Estimate:
    """Evaluate the truth and the modelled deviation of a reference call.

    Args:
        run: Calls the reference on float64 inputs and parameters and returns its tensors. Called
            `1 + samples` times with the same random state, so it must leave its state as it was.
        precision: What a correct kernel computes in.
        samples: Number of perturbed runs. The root mean square of 16 is five times too small
            for three elements in 10**9; that of 8, for three in 10**5.
        seed: Seed of the modelled errors and of PyTorch's generator, which is restored.

    Raises:
        ValueError: `samples` is less than 1.
    """
    if samples < 1:
        raise ValueError(f"estimate needs at least one perturbed run, got samples={samples}")
    own_epsilon = DefaultEpsilon(precision.dtype)
    with _same_randomness(seed) as drawn, own_epsilon, Float64Mode():
        results = run()
    truth = _copies(results)
    draws_random = drawn()
    squares = [torch.zeros(value.shape, dtype=torch.float64) for value in truth]
    draw = partial(_normal, torch.Generator().manual_seed(seed))
    sizes = ErrorSizes()
    terms, unmodelled = 1, set()
    for _ in range(samples):
        mode = RoundingMode(precision, draw, sizes)
        with _same_randomness(seed), own_epsilon, mode:
            results = run()
        for total, value, exact in zip(squares, _copies(results), truth, strict=True):
            total += _squared_error(value, exact)
        terms = max(terms, mode.reduction_terms)
        unmodelled |= mode.unmodelled
    return Estimate(
        values=truth,
        deviation=tuple(
            _deviation(total, value, samples) for total, value in zip(squares, truth, strict=True)
        ),
        reduction_terms=terms,
        draws_random=draws_random,
        unmodelled=tuple(sorted(unmodelled)),
    )


def allowed(
    truth: Tensor,
    deviation: Tensor,
    precision: Precision,
    output_dtype: torch.dtype,
    *,
    subnormal: bool = False,
) -> Tensor:
    """The largest error of a correct kernel, per element.

    Args:
        truth: The reference's result in float64, or integer or bool.
        deviation: The modelled deviation of the same shape, float64.
        precision: What a correct kernel computes in.
        output_dtype: Dtype in which the kernel stores the result.
        subnormal: Judge subnormal results too, to a step of their grid. By default results below
            the smallest normal number may be flushed to zero.

    Returns:
        float64 tensor. For integer and bool results 0, or infinity where the truth is ambiguous.
    """
    if not (truth.is_floating_point() or truth.is_complex()):
        return torch.where(deviation > 0, torch.inf, 0.0).to(torch.float64)
    dtype = output_dtype if output_dtype.is_floating_point else precision.dtype
    finfo = torch.finfo(dtype)
    floor = smallest_subnormal(dtype) if subnormal else finfo.smallest_normal
    size = torch.where(torch.isfinite(truth), truth.abs(), 0.0).to(torch.float64)
    return DEVIATIONS * deviation + finfo.eps * size + floor


def _normal(generator: torch.Generator, shape: torch.Size) -> Tensor:
    """Standard normal numbers, float64; drawn in float32, which takes a fifth of the time."""
    return torch.randn(shape, dtype=torch.float32, generator=generator).double()


@contextmanager
def _same_randomness(seed: int) -> Iterator[Callable[[], bool]]:
    """Seed PyTorch's generator for a while; yields whether it was used since."""
    with torch.random.fork_rng(devices=[]):
        seed_generators(seed)
        before = torch.get_rng_state()
        after = []
        yield lambda: not torch.equal(before, after[0])
        after.append(torch.get_rng_state())


def _copies(results: Sequence[Tensor | float]) -> tuple[Tensor, ...]:
    """Results in float64, out of reach of what the next run does in place."""
    tensors = [
        torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else value
        for value in results
    ]
    values = [torch.as_tensor(value).detach() for value in tensors]
    return tuple(value.to(WIDER.get(value.dtype, value.dtype), copy=True) for value in values)


def _squared_error(value: Tensor, truth: Tensor) -> Tensor:
    """Squared error per element; infinite where the shape or the finiteness was lost."""
    if value.shape != truth.shape:
        return torch.full(truth.shape, torch.inf, dtype=torch.float64)
    if not (truth.is_floating_point() or truth.is_complex()):
        return (value != truth).to(torch.float64)
    error = (value - truth).abs().square()
    error = torch.where(torch.isfinite(error), error, torch.inf)
    return torch.where(torch.isfinite(truth), error, 0.0)


def _deviation(total: Tensor, truth: Tensor, samples: int) -> Tensor:
    if truth.is_floating_point() or truth.is_complex():
        return (total / samples).sqrt()
    return (total > 0).to(torch.float64)
