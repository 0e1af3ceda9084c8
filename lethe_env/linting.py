"""Lint of many tasks: one process for each, so that none can end, stall or starve the run."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic

from .gates.lint import Lint, lint
from .gates.oracle import Oracle
from .grader import cache_directory
from .tasks.kernelbench_folder import Loader
from .tasks.reference import one_line

SECONDS = 300.0
"""For one task: to find its shapes, derive its truths and try what would pass."""
MEMORY_BYTES = 8 << 30
"""Address space of one task's process."""


def lint_many(
    loaders: Sequence[tuple[str, Loader]],
    *,
    workers: int = 1,
    seconds: float = SECONDS,
    memory_bytes: int = MEMORY_BYTES,
) -> Iterator[Lint]:
    """Lint tasks side by side; reports come as they are finished.

    What cannot be linted, because it takes too long, takes too much memory, or ends its process,
    is a report that says so.

    Args:
        loaders: names of tasks with what loads each.
        workers: processes at a time.
        seconds: deadline of each.
        memory_bytes: address space of each.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    left = list(reversed(loaders))
    running: dict[Connection, tuple[str, BaseProcess, float]] = {}
    try:
        while left or running:
            while left and len(running) < workers:
                name, load = left.pop()
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_lint, args=(name, load, memory_bytes, sender))
                process.start()
                sender.close()
                running[receiver] = (name, process, monotonic() + seconds)
            first = min(deadline for _, _, deadline in running.values())
            ready = wait(list(running), max(0.0, first - monotonic()))
            for receiver in list(running):
                name, process, deadline = running[receiver]
                if receiver in ready:
                    yield _received(receiver, name)
                elif monotonic() >= deadline:
                    yield Lint(task=name, problems=(f"not linted: took over {seconds:g} seconds",))
                else:
                    continue
                del running[receiver]
                _end(receiver, process)
    finally:
        for receiver, (_, process, _) in running.items():
            _end(receiver, process)


def _end(receiver: Connection, process: BaseProcess) -> None:
    receiver.close()
    process.kill()
    process.join()


def _received(receiver: Connection, name: str) -> Lint:
    try:
        return receiver.recv()  # from our own code: a task's reference is trusted
    except EOFError:
        return Lint(task=name, problems=("not linted: its process ended (out of memory?)",))


def _lint(name: str, load: Loader, memory_bytes: int, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    try:
        report = lint(load(), Oracle(cache_directory=cache_directory() / "oracle"))
    except Exception as error:  # noqa: BLE001 - whatever a reference raises is reported
        report = Lint(task=name, problems=(f"not linted: {one_line(error)}",))
    sender.send(report)
