"""Memory for the sanitizer's cells of global memory, kept from launch to launch.

Marks of blocks grow from launch to launch, so what earlier launches left in a cell is recognised as
old and needs no clearing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from .room import Room

_KEPT_BYTES = 256 << 20
_LAST_MARK = 0x7FFFFFFF


class CellPool:
    """Rooms for cells, uint64 `[cells]`, that no launch uses at the moment."""

    def __init__(self) -> None:
        self._free: list[Room] = []
        self._next_mark = 0
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, counts: list[int], blocks: int) -> Iterator[tuple[list[Room], int]]:
        """Rooms for one launch, and the number below its first mark.

        Args:
            counts: Cells wanted, per room.
            blocks: Blocks of the launch, each with a mark, and one more for several blocks.
        """
        with self._lock:
            if self._next_mark + blocks + 1 > _LAST_MARK:
                self._free, self._next_mark = [], 0
            base = self._next_mark
            self._next_mark += blocks + 1
            rooms = [self._take(count) for count in counts]
        try:
            yield rooms, base
        finally:
            with self._lock:
                if base < self._next_mark:
                    self._keep(rooms)

    def _take(self, count: int) -> Room:
        for position, room in enumerate(self._free):
            if len(room.array) >= count:
                return self._free.pop(position)
        return Room.of(np.zeros(count, np.uint64))

    def _keep(self, rooms: list[Room]) -> None:
        self._free = sorted(self._free + rooms, key=lambda room: len(room.array))
        while sum(room.array.nbytes for room in self._free) > _KEPT_BYTES:
            self._free.pop()
