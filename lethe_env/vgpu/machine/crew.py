"""Threads that stay alive from launch to launch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache


def run_all(tasks: Sequence[Callable[[], None]]) -> None:
    """Run tasks at the same time, the first of them in the calling thread."""
    mine, *others = tasks
    helpers = _helpers(os.getpid(), len(others))
    waiting = [helpers.submit(task) for task in others]
    try:
        mine()
    finally:
        for future in waiting:
            future.result()


@cache
def _helpers(process: int, count: int) -> ThreadPoolExecutor:
    """Threads do not outlive a fork, so each process has its own."""
    return ThreadPoolExecutor(count, f"blocks-{process}")
