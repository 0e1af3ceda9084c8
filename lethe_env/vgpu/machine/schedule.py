"""In which order the blocks of a launch begin."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

_LONGEST_RUN, _FEWEST_RUNS = 32, 32
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_MIXING = tuple(
    (np.uint64(shift), np.uint64(factor))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
)
_LAST_SHIFT, _LOWEST_BIT = np.uint64(31), np.uint64(1)
_SEED_STEP = 1 << 32
"""Launches draw from parts of the sequence that lie so far apart."""


def block_order(blocks: int, seed: int | None) -> np.ndarray:
    """Linear indices of all blocks in the order they begin, uint32 `[blocks]`.

    Neighbours usually work on neighbouring memory, which caches reward. So a large grid is cut into
    runs of neighbours; the runs are shuffled, and each goes forwards or backwards. A small grid is
    shuffled block by block.

    Args:
        blocks: how many there are.
        seed: what the order is drawn from; `None` is by index.
    """
    if seed is None or blocks < 2:
        return np.arange(blocks, dtype=np.uint32)
    length = max(1, min(_LONGEST_RUN, blocks // _FEWEST_RUNS))
    keys = _random_bits(-(-blocks // length), seed)
    starts = np.uint32(length) * keys.argsort().astype(np.uint32)
    steps = np.arange(length, dtype=np.uint32)
    forwards = (keys & _LOWEST_BIT).astype(bool)
    order = starts[:, None] + np.where(forwards[:, None], steps, steps[::-1])
    return order[order < blocks]


def _random_bits(count: int, seed: int) -> np.ndarray:
    """Numbers that a launch draws in a few microseconds, by SplitMix64; uint64 `[count]`.

    Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
    """
    bits = _counters(count) + np.uint64(seed * _SEED_STEP * _GOLDEN_GAMMA % (1 << 64))
    for shift, factor in _MIXING:
        bits ^= bits >> shift
        bits *= factor
    return bits ^ (bits >> _LAST_SHIFT)


@lru_cache(maxsize=64)
def _counters(count: int) -> np.ndarray:
    """The first states of SplitMix64 that begins at zero."""
    return np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN_GAMMA)
