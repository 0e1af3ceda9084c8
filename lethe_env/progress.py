"""How far long work has come: bars on a terminal or in a notebook, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

REPORT_SECONDS = 10.0
"""Between two lines where no bar can be drawn; shorter work says nothing."""

Report = Callable[[str, int, int | None], None]
"""Told the phase, how much is done, and of how much, or None if nobody knows."""


@contextmanager
def shown(console: Console, phase: str, *, keep: bool = False) -> Iterator[Report]:
    """Show what the report is told for as long as the block lasts.

    Args:
        console: where to, usually standard error.
        phase: what comes first.
        keep: give every phase a bar of its own that stays, instead of one bar that goes.
    """
    if not (console.is_terminal or console.is_jupyter):
        yield _lines(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=not keep) as bars:
        yield _a_bar_each(bars) if keep else _one_bar(bars, phase)


def _lines(console: Console) -> Report:
    said = time.monotonic()

    def report(phase: str, done: int, total: int | None) -> None:
        nonlocal said
        if time.monotonic() - said < REPORT_SECONDS:
            return
        said = time.monotonic()
        of = "" if total is None else f" of {total}"
        console.print(f"{phase}: {done}{of}", highlight=False, markup=False, soft_wrap=True)

    return report


def _one_bar(bars: Progress, phase: str) -> Report:
    bar = bars.add_task(phase, total=None)

    def report(phase: str, done: int, total: int | None) -> None:
        bars.update(bar, description=phase, completed=done, total=total)

    return report


def _a_bar_each(bars: Progress) -> Report:
    of: dict[str, TaskID] = {}

    def report(phase: str, done: int, total: int | None) -> None:
        if phase not in of:
            of[phase] = bars.add_task(phase, total=total)
        bars.update(of[phase], completed=done, total=total)

    return report
