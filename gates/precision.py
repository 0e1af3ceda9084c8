"""Precision: what a correct kernel computes in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PROBE_DTYPES = (torch.float32, torch.float16, torch.bfloat16)

DEVIATIONS = 4.0
"""How many root mean squares of the modelled error an honest result may be away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What a correct kernel computes in, for a probe dtype.

    A unit is the unit roundoff u: half the distance from 1 to the next number, which bounds the
    relative error of rounding to nearest.

    Raises:
        ValueError: `dtype` is none of float32, float16 and bfloat16.
    """

    dtype: torch.dtype
    """In which results may be stored: the probe's dtype."""
    tf32: bool = False
    """Whether matrix products and convolutions of float32 inputs may round them to TF32."""
    flushes_subnormals: bool = True
    """Whether a subnormal result may become zero, as GPU code does by default."""

    def __post_init__(self) -> None:
        if self.dtype not in PROBE_DTYPES:
            known = ", ".join(str(dtype) for dtype in PROBE_DTYPES)
            raise ValueError(f"no rounding model for {self.dtype}: use one of {known}")

    @property
    def elementwise_unit(self) -> float:
        """Unit roundoff of a stored result: 2**-24, 2**-11 or 2**-8."""
        return torch.finfo(self.dtype).eps / 2

    @property
    def accumulate_unit(self) -> float:
        """Unit roundoff of running totals and inner results, float32 for every dtype: 2**-24."""
        return torch.finfo(torch.float32).eps / 2

    @property
    def storage_ulp(self) -> float:
        """Distance from 1 to the next number of the dtype."""
        return 2 * self.elementwise_unit

    @property
    def smallest_normal(self) -> float:
        """Smallest positive number of the dtype with a full mantissa."""
        return torch.finfo(self.dtype).smallest_normal

    def underflows(self, size: Tensor, *, stored: bool) -> bool:
        """Whether any result of magnitude `size` is below the smallest normal number, but not 0."""
        smallest = torch.finfo(self._arithmetic(stored)).smallest_normal
        return bool(((size < smallest) & (size > 0)).any())

    def underflow(self, size: Tensor, *, stored: bool) -> Tensor:
        """Absolute error, below the smallest normal number, of results of magnitude `size`.

        Args:
            size: Magnitudes, float64.
            stored: Whether the result is rounded to `dtype` or stays in float32.

        Returns:
            float64 tensor of the same shape, zero at normal results and at zero.
        """
        dtype = self._arithmetic(stored)
        flushed = self.flushes_subnormals and dtype is not torch.float16  # no GPU flushes float16
        error = size if flushed else size.clamp(max=smallest_subnormal(dtype) / 2)
        return torch.where(size < torch.finfo(dtype).smallest_normal, error, 0.0)

    def _arithmetic(self, stored: bool) -> torch.dtype:
        return self.dtype if stored else torch.float32


def smallest_subnormal(dtype: torch.dtype) -> float:
    """Smallest positive number of a floating dtype."""
    finfo = torch.finfo(dtype)
    return finfo.smallest_normal * finfo.eps
