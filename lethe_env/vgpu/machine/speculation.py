"""Blocks of one launch on several threads, with the outcome of one thread.

Each thread runs a part of the blocks, with cells of its own. If afterwards no two threads have met
in memory, and nothing was found, then no thread can have noticed the others, and memory is as one
thread would have left it. If not, memory is set back, and it is for one thread to run them all and
to say what is wrong. What is stored but not loaded need not be set back: it is stored again.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial

import numpy as np

from ..ptx.flow import Flow
from ..ptx.model import Kernel
from . import shared_code
from .clashes import FINDER, ThreadCells, find_clash
from .crew import run_all
from .launch import Cells, Launch, Share
from .outcome import merge
from .report import LaunchReport
from .sectors import CELL_BYTES
from .worker import Worker

_LEAST_WORK = 1 << 17
"""Instructions of warps below which threads are not worth waking: about a millisecond."""
_ROUNDS = 16
"""Of a loop, by guess."""
_LEAST_BLOCKS = 4
"""Per thread."""
_MOST_CELL_BYTES = 1 << 29
"""Of all threads."""
_MOST_SAVED_BYTES = 1 << 26
_WRITTEN_BYTES_PER_WORK = 16
"""Care for memory must not take longer than what threads save; derived in `worthwhile_threads`."""


def work_of_warp(kernel: Kernel, flow: Flow) -> int:
    """About how many instructions a warp executes; loops are taken to have 16 rounds."""
    total = 0
    for number, block in enumerate(flow.blocks):
        depth = sum(loop.header <= number < loop.stop for loop in flow.loops)
        total += (block.stop - block.start) * _ROUNDS**depth
    return total


def worthwhile_threads(
    work: int,
    blocks: int,
    cells: Cells,
    saved: Set[int],
    table: np.ndarray,
    most: int,
) -> int:
    """On how many threads the blocks of a launch should run.

    An instruction of a warp takes some 10 ns, of which a second thread saves half. A byte that may
    be written takes some 0.2 ns at most: it may have to be saved, and its cells are compared
    afterwards. With 16 bytes for each instruction, more than half of what is saved is lost again.

    Args:
        work: instructions of all warps.
        blocks: of the grid.
        cells: see `launch.cells_wanted`.
        saved: windows that would have to be saved.
        table: see `launch.Memory`.
        most: threads that there may be.
    """
    sizes = {window: int(table[window, 1]) for window in cells}
    saved_bytes = sum(sizes[window] for window in saved)
    written_bytes = sum(sizes.values())
    too_much = saved_bytes > _MOST_SAVED_BYTES or written_bytes > _WRITTEN_BYTES_PER_WORK * work
    if work < _LEAST_WORK or too_much:
        return 1
    cell_bytes = CELL_BYTES * sum(sum(counts) for counts in cells.values())
    by_cells = _MOST_CELL_BYTES // max(cell_bytes, 1)
    return max(1, min(most, blocks // _LEAST_BLOCKS, by_cells))


def run_apart(launch: Launch, cells: Cells, saved: Set[int]) -> LaunchReport | None:
    """Run every share of a launch on a thread of its own, which then steals from the others.

    Args:
        launch: what to run.
        cells: see `launch.cells_wanted`.
        saved: windows whose content matters if the launch is repeated.

    Returns:
        The report; `None` if it takes one thread to tell what happens: what matters of memory is
        as it was.
    """
    with _saved(launch.table.array, sorted(saved)) as restore:
        workers = [Worker.of(launch, share) for share in launch.shares]
        try:
            run_all([partial(_work, launch, number, w) for number, w in enumerate(workers)])
            report = merge(launch, workers)
            clean = not report.findings and not report.stopped
            if clean and not _clash(launch, workers, list(cells)):
                return report
            restore()
            return None
        finally:
            for worker in workers:
                worker.close()


def _work(launch: Launch, number: int, worker: Worker) -> None:
    """Run a worker's own share, and then what others have not come to."""
    launch.program.work(worker)
    steal(worker, (*launch.shares[number + 1 :], *launch.shares[:number]), launch.program.work)


def steal(worker: Worker, shares: Sequence[Share], work: Callable[[Worker], None]) -> None:
    """Run blocks that are left of other threads' shares.

    Args:
        worker: What runs it.
        shares: In this order.
        work: Runs blocks of the share that a worker takes from.
    """
    for share in shares:
        if share.next_block.array[0] < share.blocks and not worker.context.stop:
            worker.take_from(share)
            work(worker)


def _clash(launch: Launch, workers: Sequence[Worker], windows: Sequence[int]) -> bool:
    finder = shared_code.address(FINDER)
    for window in windows:
        threads = [ThreadCells(*share.cells.array[:, window].tolist()) for share in launch.shares]
        size_bytes = int(launch.table.array[window, 1])
        if find_clash(finder, threads, workers[0].context, size_bytes):
            return True
    return False


_BUFFERS: list[np.ndarray] = []
_LOCK = threading.Lock()


@contextmanager
def _saved(table: np.ndarray, windows: Sequence[int]) -> Iterator[object]:
    """Keep what lies in windows, and which of it is defined; gives a function that puts it back."""
    if not windows:
        yield lambda: None
        return
    pieces = []
    for window in windows:
        _, size_bytes, host, defined = (int(value) for value in table[window])
        pieces += [(address, size_bytes) for address in (host, defined) if address]
    total_bytes = sum(size_bytes for _, size_bytes in pieces)
    with _LOCK:
        buffer = _BUFFERS.pop() if _BUFFERS else np.empty(0, np.uint8)
    if len(buffer) < total_bytes:
        buffer = np.empty(total_bytes, np.uint8)
    places, place = [], buffer.ctypes.data
    for address, size_bytes in pieces:
        ctypes.memmove(place, address, size_bytes)
        places.append((address, place, size_bytes))
        place += size_bytes

    def restore() -> None:
        for address, place, size_bytes in places:
            ctypes.memmove(address, place, size_bytes)

    try:
        yield restore
    finally:
        with _LOCK:
            _BUFFERS[:] = [buffer]
