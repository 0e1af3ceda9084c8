"""`lethe evaluate`: a folder of kernels in, rates out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .command_line import (
    ALL_TARGETS,
    AsJson,
    Device,
    Seed,
    Targets,
    UsageError,
    conclude,
    grader_options,
)
from .env import evaluation


def evaluate(
    kernels: Annotated[
        Path,
        typer.Argument(help="A folder of class__problem*.py or class/problem/*.py, or one file."),
    ],
    task: Annotated[
        list[str] | None, typer.Option(help="A suite id, an op class, a file or a folder; repeat.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Keep samples in this folder, and go on where a run stopped."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the rates into this image.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that grade.")] = None,
    device: Device = "auto",
    targets: Targets = ALL_TARGETS,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Grade a folder of kernels and count. Exits with 3 if some could not be judged, else 0."""
    options = grader_options(device, targets, seed)
    try:
        result = evaluation.evaluate(
            kernels, task or None, folder=output, options=options, workers=workers
        )
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    if plot is not None:
        result.plot().savefig(plot)
    conclude(result.summary(), as_json=as_json)
