"""`lethe tasks lint`: what would pass on a task that should not."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .command_line import FAILED, PASSED, AsJson, log, out
from .gates.lint import Lint
from .linting import MEMORY_BYTES, SECONDS, lint_many
from .progress import shown
from .tasks.catalog import suite, task_loaders


def lint_tasks(
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Suite ids, files, folders or tables; else the suite."),
    ] = None,
    level: Annotated[int | None, typer.Option(help="Only this KernelBench level.")] = None,
    workers: Annotated[int, typer.Option(help="Tasks at a time.")] = 1,
    seconds: Annotated[float, typer.Option(help="Deadline of one task.")] = SECONDS,
    memory_gib: Annotated[
        float, typer.Option(help="Address space of one task, in GiB.")
    ] = MEMORY_BYTES / (1 << 30),
    as_json: AsJson = False,
) -> None:
    """Say for each task what would pass on it that should not. Exits with 1 if anything would."""
    names = sources or list(suite())
    loaders = [found for name in names for found in task_loaders(name, level)]
    reports = []
    with shown(log, "lint") as progress:
        limit_bytes = int(memory_gib * (1 << 30))
        for report in lint_many(
            loaders, workers=workers, seconds=seconds, memory_bytes=limit_bytes
        ):
            reports.append(report)
            progress(report.task, len(reports), len(loaders))
            if not as_json:
                _show(report)
    if as_json:
        print(json.dumps([report.to_json() for report in reports], indent=2))
    raise typer.Exit(FAILED if any(report.problems for report in reports) else PASSED)


def _show(report: Lint) -> None:
    state = "fine" if not report.problems else f"{len(report.problems)} problems"
    out.print(f"{report.task}: {state}", style="" if not report.problems else "red")
    for line in (*report.problems, *report.kernelbench, *_size(report), *report.notes):
        out.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _size(report: Lint) -> tuple[str, ...]:
    if report.native_bytes is None:
        return ()
    fits = "fit" if report.fits else "do not fit"
    megabytes = f"{report.native_bytes / 1e6:.4g} MB"
    return (f"{megabytes} at the native shape: reference and candidate {fits} this machine",)
