"""Memory for the sanitizer's cells of global memory, kept from launch to launch.

Marks of blocks grow from launch to launch, so what earlier launches left in a cell is recognised as
old and needs no clearing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from .buffer import Buffer

_KEPT_BYTES = 256 << 20
_LAST_MARK = 0x7FFFFFFF


class CellPool:
    """Buffers for cells, uint64 `[cells]`, that no launch uses at the moment."""

    def __init__(self) -> None:
        self._free: list[Buffer] = []
        self._next_mark = 0
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, counts: list[int], blocks: int) -> Iterator[tuple[list[Buffer], int]]:
        """Buffers for one launch, and the number below its first mark.

        Args:
            counts: Cells wanted, per buffer.
            blocks: Blocks of the launch, each with a mark, and one more for several blocks.
        """
        with self._lock:
            if self._next_mark + blocks + 1 > _LAST_MARK:
                self._free, self._next_mark = [], 0
            base = self._next_mark
            self._next_mark += blocks + 1
            buffers = [self._take(count) for count in counts]
        try:
            yield buffers, base
        finally:
            with self._lock:
                if base < self._next_mark:
                    self._keep(buffers)

    def _take(self, count: int) -> Buffer:
        for position, kept in enumerate(self._free):
            if len(kept.array) >= count:
                return self._free.pop(position)
        return Buffer.of(np.zeros(count, np.uint64))

    def _keep(self, buffers: list[Buffer]) -> None:
        self._free = sorted(self._free + buffers, key=lambda kept: len(kept.array))
        while sum(kept.array.nbytes for kept in self._free) > _KEPT_BYTES:
            self._free.pop()
