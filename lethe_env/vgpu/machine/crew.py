"""Threads that stay alive from launch to launch."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue


class _Helper:
    """A thread that runs one task after the other; it takes microseconds to wake."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._ends: SimpleQueue[BaseException | None] = SimpleQueue()
        threading.Thread(target=self._work, name="blocks", daemon=True).start()

    def begin(self, task: Callable[[], None]) -> None:
        """Let it run a task."""
        self._tasks.put(task)

    def end(self) -> BaseException | None:
        """Wait until the task is over; gives what it raised."""
        return self._ends.get()

    def _work(self) -> None:
        while True:
            error = None
            try:
                self._tasks.get()()
            except BaseException as raised:  # noqa: BLE001 - for the thread that waits
                error = raised
            self._ends.put(error)


_IDLE: list[_Helper] = []
os.register_at_fork(after_in_child=_IDLE.clear)  # threads do not outlive a fork


def run_all(tasks: Sequence[Callable[[], None]]) -> None:
    """Run tasks at the same time, the first of them in the calling thread."""
    mine, *others = tasks
    helpers = [_helper() for _ in others]
    for helper, task in zip(helpers, others, strict=True):
        helper.begin(task)
    try:
        mine()
    finally:
        errors = [helper.end() for helper in helpers]
        _IDLE.extend(helpers)
    for error in errors:
        if error is not None:
            raise error


def _helper() -> _Helper:
    try:
        return _IDLE.pop()
    except IndexError:
        return _Helper()
