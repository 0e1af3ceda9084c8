"""`evaluate`: many candidates, or what a policy writes, graded and counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from ..progress import shown
from ..service.client import connect
from ..service.jobs import Verifier
from ..service.options import GraderOptions
from .candidates import attempts
from .episodes import Episode, Report, play
from .scores import Evaluation
from .selection import Selection
from .storage import Journal

__all__ = ["Evaluation", "evaluate"]

BATCH = 16
"""Samples that are graded side by side."""
ACT_SECONDS = 600.0
"""Time a policy has for one answer: a large model on a slow machine, not a policy that hangs."""


def evaluate(
    kernels: Any,
    tasks: Selection = None,
    *,
    n: int = 1,
    max_turns: int = 1,
    folder: str | Path | None = None,
    verifier: Verifier | None = None,
    device: str = "auto",
    options: GraderOptions | None = None,
    workers: int | None = None,
    batch: int = BATCH,
    act_seconds: float = ACT_SECONDS,
    progress: bool = True,
) -> Evaluation:
    """Grade many kernels and count.

    No candidate and no policy can end it: what raises, hangs or returns rubbish is a sample with
    a status of its own, and what the harness fails to judge is left out of every rate.

    Args:
        kernels: one source or a list of them, for a single task; a mapping from task to sources;
            a folder of `class__problem*.py` or `class/problem/*.py`, where tasks without a file are
            left out; a policy, anything with `act(observation) -> source`; or a Hugging Face
            text-generation pipeline. A source may be a `Path`.
        tasks: what to choose from, see `select_tasks`; the suite by default.
        n: samples a task, drawn from a policy.
        max_turns: turns a policy has for one sample; the best one counts.
        folder: keeps every sample as soon as it is finished, goes on where an earlier call stopped,
            and gets the table and the summary at the end.
        verifier: judges; the caller closes it. By default the broker of this user.
        device: `auto`, `cuda`, `vgpu` or `interpreter`; left aside if `options` are given.
        options: how the broker grades.
        workers: processes of the broker.
        batch: samples that are graded side by side, and lost if the evaluation is stopped.
        act_seconds: deadline of a policy for one answer.
        progress: shows a bar on standard error.

    Raises:
        TaskError: a task that is not there.
        TypeError: `kernels` is nothing that can be evaluated.
        ValueError: nothing to evaluate, no telling what a source is for, or a folder that holds
            another evaluation.
        OSError: a file that is not there or cannot be read.
    """
    planned, policy = attempts(kernels, tasks, n)
    if batch < 1:
        raise ValueError(f"batch is {batch}; at least one sample has to be graded at a time")
    options = options or GraderOptions(device=device)
    turns = max_turns if policy is not None else 1
    common = {
        "policy": type(kernels).__name__ if policy is not None else None,
        "max_turns": turns,
        "verifier": options.digest if verifier is None else type(verifier).__name__,
    }
    where = None if folder is None else Path(folder)
    with Journal(where, common) as journal:
        todo = [attempt for attempt in planned if attempt.key not in journal.samples]
        if todo:
            with (
                _judge(verifier, options, workers) as judge,
                _finished(progress, len(planned), len(todo)) as report,
            ):
                for start in range(0, len(todo), batch):
                    episodes = [Episode(attempt, turns) for attempt in todo[start : start + batch]]
                    play(episodes, policy, judge, act_seconds, report)
                    for episode in episodes:
                        journal.add(episode.attempt.key, episode.sample())
        evaluation = Evaluation(tuple(journal.samples[attempt.key] for attempt in planned))
    if where is not None:
        evaluation.save(where)
    return evaluation


@contextmanager
def _judge(
    verifier: Verifier | None, options: GraderOptions, workers: int | None
) -> Iterator[Verifier]:
    if verifier is not None:
        yield verifier
        return
    own = connect(options, workers)
    try:
        yield own
    finally:
        own.close()


@contextmanager
def _finished(wanted: bool, planned: int, todo: int) -> Iterator[Report]:
    if not wanted:
        yield lambda phase, finished: None
        return
    with shown(Console(stderr=True), "evaluate") as show:
        done = planned - todo

        def report(phase: str, finished: int) -> None:
            nonlocal done
            done += finished
            show(phase, done, planned)

        yield report
