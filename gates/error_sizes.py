"""Error sizes: how large the errors of a reference's sums are, found once and used by every run.

What a sum's error is measured by costs several times the sum: it is done again on the magnitudes of
its terms, on their squares and on ones. A perturbed run draws errors anew, while their sizes hardly
change: terms that are off by δ move the size by about u·δ, which is nothing beside the δ that they
carry into the sum. So the first run works the sizes out and the further ones use them.

A sum whose terms have one sign keeps that sign however it is rounded. There the size is kept in
proportion to the sum, which may be much smaller in another run where the terms are rounding errors
themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .coherence import LIKE_SIGNED

KEPT_BYTES = 1 << 28
"""Sizes beyond this are worked out in every run."""


@dataclass(frozen=True, slots=True)
class ErrorSize:
    """The size of the errors of one result, in units of the accumulator."""

    absolute: Tensor
    relative: Tensor
    """Times the magnitude of the result."""

    @classmethod
    def found(cls, error: Tensor, total: Tensor, magnitude: Tensor) -> ErrorSize:
        """Tell what is in proportion to the result from what is not.

        Args:
            error: its size in the first run, not negative.
            total: the result there.
            magnitude: the sum of the magnitudes of its terms.
        """
        signed = total.abs() >= LIKE_SIGNED * magnitude
        share = error / total.abs()
        return cls(
            absolute=torch.where(signed, 0.0, error),
            relative=torch.where(signed & (total != 0), share, 0.0),
        )

    def at(self, total: Tensor) -> Tensor:
        """The size of the error of a result of the same sum in any run."""
        return self.absolute + self.relative * total.abs()

    @property
    def nbytes(self) -> int:
        """Memory that it holds."""
        return self.absolute.nbytes + self.relative.nbytes


Sizes = list[ErrorSize | None]
"""One for each result of an operation; `None` where there is no tensor."""


@dataclass(slots=True)
class ErrorSizes:
    """The sizes of all sums, in the order in which a run comes to them."""

    _kept: list[tuple[object, Sizes | None]] = field(default_factory=list)
    _bytes: int = 0
    _asked: int = 0

    def rewind(self) -> None:
        """Begin another run of the same reference."""
        self._asked = 0

    def of(self, question: object, compute: Callable[[], Sizes]) -> Sizes:
        """The sizes of the next sum.

        Args:
            question: which operation, on which shapes; a run that took another way is noticed.
            compute: works the sizes out.
        """
        place = self._asked
        self._asked += 1
        if place < len(self._kept):
            asked, kept = self._kept[place]
            return kept if kept is not None and asked == question else compute()
        sizes = compute()
        size_bytes = sum(size.nbytes for size in sizes if size is not None)
        fits = self._bytes + size_bytes <= KEPT_BYTES
        self._kept.append((question, sizes if fits else None))
        self._bytes += size_bytes if fits else 0
        return sizes
