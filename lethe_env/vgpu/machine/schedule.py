"""In which order the blocks of a launch begin."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
_FEW_RUNS = 1 << 10
"""If there are more, nothing is kept for later launches."""
_SEEDS = 8
"""As many launches draw together."""


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
    count = -(-blocks // length)
    few = count <= _FEW_RUNS
    chosen = _kept_choices(count, seed // _SEEDS)[seed % _SEEDS] if few else _choice(count, seed)
    order = (_kept_runs if few else _runs)(count, length).take(chosen, axis=0).ravel()
    return order if count * length == blocks else order[order < blocks]


def cluster_order(
    grid: tuple[int, int, int], cluster: tuple[int, int, int], seed: int | None
) -> np.ndarray:
    """Linear indices of all blocks in the order they begin, uint32 `[blocks]`.

    The blocks of a cluster stand together, by rank; clusters go as blocks of their own would.

    Args:
        grid: Blocks along x, y and z.
        cluster: Of them, blocks of a cluster.
        seed: see `block_order`.
    """
    if cluster == (1, 1, 1):
        return block_order(math.prod(grid), seed)
    counts = [length // size for length, size in zip(grid, cluster, strict=True)]
    first = block_order(math.prod(counts), seed).astype(np.int64)
    corners = [first % counts[0], first // counts[0] % counts[1],
               first // (counts[0] * counts[1])]  # fmt: skip
    ranks = np.arange(math.prod(cluster))
    inside = [ranks % cluster[0], ranks // cluster[0] % cluster[1],
              ranks // (cluster[0] * cluster[1])]  # fmt: skip
    x, y, z = (
        corner[:, None] * size + within
        for corner, size, within in zip(corners, cluster, inside, strict=True)
    )
    return (x + grid[0] * (y + grid[1] * z)).ravel().astype(np.uint32)


def _runs(count: int, length: int) -> np.ndarray:
    """Runs of neighbours, all backwards and then all forwards; uint32 `[2 * count, length]`."""
    runs = np.arange(count * length, dtype=np.uint32).reshape(count, length)
    return np.concatenate([runs[:, ::-1], runs])


def _choices(count: int, group: int) -> np.ndarray:
    """For a group of neighbouring seeds, which of `_runs` come when; int64 `[seeds, count]`.

    One after the other, they take as long for each launch as all of them together.
    """
    return _chosen(_random_bits(count, range(group * _SEEDS, (group + 1) * _SEEDS)))


def _choice(count: int, seed: int) -> np.ndarray:
    return _chosen(_random_bits(count, [seed]))[0]


_kept_runs = lru_cache(maxsize=16)(_runs)
_kept_choices = lru_cache(maxsize=16)(_choices)


def _chosen(keys: np.ndarray) -> np.ndarray:
    forwards = (keys & _LOWEST_BIT).astype(np.int64)
    return keys.argsort(axis=1) + forwards * keys.shape[1]


def _random_bits(count: int, seeds: Sequence[int]) -> np.ndarray:
    """Numbers that launches draw in a few microseconds, by SplitMix64; uint64 `[seeds, count]`.

    Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
    """
    starts = [seed * _SEED_STEP * _GOLDEN_GAMMA % (1 << 64) for seed in seeds]
    bits = _counters(count) + np.array(starts, np.uint64)[:, None]
    for shift, factor in _MIXING:
        bits ^= bits >> shift
        bits *= factor
    return bits ^ (bits >> _LAST_SHIFT)


@lru_cache(maxsize=64)
def _counters(count: int) -> np.ndarray:
    """The first states of SplitMix64 that begins at zero."""
    return np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN_GAMMA)
