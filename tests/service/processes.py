"""Looking at processes from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

WAIT_SECONDS = 120.0


def eventually(condition: Callable[[], object]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def children(process: int) -> list[int]:
    """Direct children, of whichever thread."""
    found = []
    for listing in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += [int(child) for child in listing.read_text().split()]
        except FileNotFoundError:  # the thread has ended
            continue
    return found


def family(process: int) -> list[int]:
    """The process and everything below it."""
    return [process, *(found for child in children(process) for found in family(child))]


def alive(process: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
