"""`lethe policy`: let a policy answer tasks, and count."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..command_line import (
    ALL_TARGETS,
    AsJson,
    Device,
    Seed,
    Targets,
    UsageError,
    conclude,
    grader_options,
)
from .policy import PolicyError
from .roster import policy_named
from .scripted import ScriptedPolicy


def policy(
    name: Annotated[
        str,
        typer.Argument(
            help="expert, cheater, local:NAME, or endpoint:MODEL, for which OPENAI_BASE_URL and "
            "OPENAI_API_KEY are read."
        ),
    ],
    task: Annotated[
        list[str] | None, typer.Option(help="A suite id, an op class, a file or a folder; repeat.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Answers to each task.")] = 1,
    turns: Annotated[int, typer.Option(min=1, help="Attempts an answer may take.")] = 1,
    output: Annotated[
        Path | None,
        typer.Option(help="Keep samples in this folder, and go on where a run stopped."),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that grade.")] = None,
    device: Device = "auto",
    targets: Targets = ALL_TARGETS,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Grade what a policy writes and count. Exits with 3 if some could not be judged, else 0."""
    from ..env.evaluation import evaluate

    options = grader_options(device, targets, seed)
    try:
        chosen = policy_named(name)
        known = chosen.tasks if isinstance(chosen, ScriptedPolicy) else None
        result = evaluate(
            chosen,
            task or known,
            n=samples,
            max_turns=turns,
            folder=output,
            options=options,
            workers=workers,
        )
    except (OSError, ValueError, PolicyError) as error:
        raise UsageError(str(error)) from error
    conclude(result.summary(), as_json=as_json)
