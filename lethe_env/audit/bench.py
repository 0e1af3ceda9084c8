"""The bench: rows go in, and what became of them comes out, as it comes out.

`LocalBench` works on this machine's pool; `ray.RayBench` on a cluster.
"""

from __future__ import annotations

import queue
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from ..service.options import GraderOptions
from ..service.pool import Pool
from ..vgpu.cores import usable_cores
from .judge import Judge, Judged
from .preparer import Preparer
from .row import Row

AHEAD = 1
"""Rows whose reference is looked at while every worker judges another row."""


class Bench(Protocol):
    """Works on several rows at once."""

    @property
    def capacity(self) -> int:
        """Rows that it works on at once; more are not put in."""

    def put(self, row: Row) -> None:
        """Take one row."""

    def get(self, seconds: float) -> Judged | None:
        """What became of one of the rows, in whatever order; `None` if none is done in time."""

    def close(self) -> None:
        """End all work; rows that are under way are dropped."""


class LocalBench:
    """One judge over a pool of workers on this machine."""

    def __init__(
        self,
        options: GraderOptions | None = None,
        workers: int | None = None,
        *,
        judge: Judge | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            options: how to judge.
            workers: processes that judge; by default one for each usable core.
            judge: judges instead of a pool with those options.
        """
        workers = usable_cores() if workers is None else workers
        self._judge = judge or Judge(Pool(options, workers), Preparer())
        self.capacity = workers + AHEAD
        self._threads = ThreadPoolExecutor(self.capacity, thread_name_prefix="audit")
        self._done: queue.SimpleQueue[Future[Judged]] = queue.SimpleQueue()

    def put(self, row: Row) -> None:
        """Take one row."""
        self._threads.submit(self._judge.judge, row).add_done_callback(self._done.put)

    def get(self, seconds: float) -> Judged | None:
        """What became of one of the rows; `None` if none is done in time."""
        try:
            return self._done.get(timeout=seconds).result()
        except queue.Empty:
            return None

    def close(self) -> None:
        """End the workers; rows that are under way are dropped."""
        self._judge.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
