"""Coherence: rounding errors of a sum that all fall the same way.

u·√N·Σ|terms| takes the errors of a sum's additions for independent. They are not where every term
is nearly the same: a running total S, always on the grid of the type, moves by the same fraction of
the grid's spacing U at each step, and is rounded the same way N times. A kernel that adds in order
is not at fault.

How far that goes: U lies between u·S and 2u·S, and an addition is off by at most U/2, so the errors
add up to no more than Σ u·S_k = N/2 · u·S. If the terms spread by a standard deviation s, the mean
error of an addition is the mean of a sawtooth of period U over that spread, whose first harmonic is
damped by exp(−2π²(s/U)²) (Fourier series of the sawtooth under a normal distribution; the further
harmonics are damped more). With U at its largest, 2u·S, this is the whole of it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .precision import DEVIATIONS

LIKE_SIGNED = 0.9
"""Share of Σ|terms| that the total has at least where terms can be nearly the same."""


def like_signed(total: Tensor, magnitude: Tensor) -> bool:
    """Whether any total consists of terms of one sign, so that coherence is worth computing."""
    total, magnitude = total.abs(), magnitude.abs()
    return bool(((magnitude > 0) & (total >= LIKE_SIGNED * magnitude)).any())


def coherent_error(
    total: Tensor, squares: Tensor, weights: Tensor, terms: int | Tensor, unit: float
) -> Tensor:
    """Coherent part of a sum's error, in units of `unit`, as a root mean square.

    A bound allows `DEVIATIONS` of those, so an error of known size enters divided by that.

    Args:
        total: The sums, any shape, float64.
        squares: The same operation on the squares of its arguments' magnitudes.
        weights: The same operation on ones: how many terms there are, or 1 for a mean.
        terms: Additions per sum.
        unit: Unit roundoff of the running total.

    Returns:
        Of the shape of `total`; 0 where terms differ by more than the total's grid.
    """
    count = torch.as_tensor(terms, dtype=torch.float64)
    total = total.abs()
    mean = total / weights
    spread = (squares / weights - mean.square()).clamp_min(0).sqrt()
    spacing = 2 * unit * count * mean
    damping = torch.exp(-2 * math.pi**2 * (spread / spacing).square())
    return torch.nan_to_num(count / (2 * DEVIATIONS) * total * damping, nan=0.0)
