"""In which order the blocks of a launch begin."""

from __future__ import annotations

import numpy as np

_LONGEST_RUN, _FEWEST_RUNS = 32, 32


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
    generator = np.random.default_rng(seed)
    length = max(1, min(_LONGEST_RUN, blocks // _FEWEST_RUNS))
    runs = -(-blocks // length)
    starts = length * generator.permutation(np.arange(runs, dtype=np.uint32))
    steps = np.arange(length, dtype=np.uint32)
    forwards = generator.integers(2, size=runs, dtype=np.uint8).astype(bool)
    order = starts[:, None] + np.where(forwards[:, None], steps, steps[::-1])
    return order[order < blocks]
