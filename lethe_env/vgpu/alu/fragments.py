"""Which lane of a warp holds which element of the matrices of an `mma`."""

from __future__ import annotations

LANES = 32


def from_row(step: int) -> list[int]:
    """For each lane the lane that holds element `step` of its row of A."""
    return [lane // 4 * 4 + step for lane in range(LANES)]


def from_column(step: int, odd: int) -> list[int]:
    """For each lane the lane that holds element `step` of its even or odd column of B."""
    return [(2 * (lane % 4) + odd) * 4 + step for lane in range(LANES)]
