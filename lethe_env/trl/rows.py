"""Rows: from the columns of a dataset to tasks, and from a completion to its verdicts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from ..env.report import refused
from ..gates.verdict import Verdict
from ..grading import broken
from ..reward.completion import Extraction, extract_source
from ..service.jobs import Job
from ..tasks.catalog import suite
from ..tasks.model import Task, TaskError
from .scoring import Scorer

TASK_COLUMN = "task"
"""Column with the id of the task."""
JSON_COLUMN = "task_json"
"""Column with the task itself as JSON, empty for tasks of the suite; need not be there."""
SourceOf = Callable[[Task, Any], str | None]
"""Finds the source text that a completion stands for."""

logger = logging.getLogger(__name__)


def row_of(task: Task) -> dict[str, str]:
    """The two columns that name a task."""
    known = suite().get(task.id) == task
    return {TASK_COLUMN: task.id, JSON_COLUMN: "" if known else json.dumps(task.to_json())}


@lru_cache(maxsize=4096)
def task_of(name: str, text: str = "") -> Task | None:
    """The task of a row, `None` if the row names none; the log says so once."""
    try:
        return Task.from_json(json.loads(text)) if text else suite()[name]
    except (TaskError, ValueError, TypeError, KeyError, AttributeError) as error:
        logger.error("task %r of the dataset is left out: %s", name, error or type(error).__name__)
        return None


def tasks_of(
    count: int, names: Sequence[Any] | None, texts: Sequence[Any] | None
) -> list[Task | None]:
    """The task of every row.

    Raises:
        ValueError: the dataset has no column of tasks, so that nothing could ever be judged, or
            its columns do not fit the completions.
    """
    if names is None and texts is None:
        raise ValueError(
            f"the dataset has no column {TASK_COLUMN!r}: every row has to name its task by suite "
            f"id, or carry it as JSON in {JSON_COLUMN!r}; LetheSpec.train_dataset does"
        )
    names = [""] * count if names is None else names
    texts = [""] * count if texts is None else texts
    if not len(names) == len(texts) == count:
        raise ValueError(
            f"{count} completions came with {len(names)} values in {TASK_COLUMN!r} and "
            f"{len(texts)} in {JSON_COLUMN!r}; a batch has one of each for every completion"
        )
    return [task_of(str(name), str(text or "")) for name, text in zip(names, texts, strict=True)]


def judge_completions(
    completions: Sequence[Any],
    tasks: Sequence[Task | None],
    scorer: Scorer,
    reader: str,
    source: SourceOf | None = None,
) -> list[Verdict]:
    """One verdict per completion, in order.

    Args:
        completions: what a model wrote.
        tasks: what each answers, `None` if nobody knows.
        scorer: to ask.
        reader: in whose name.
        source: finds the source text in a completion; `None` is `extract_source`.
    """
    verdicts: dict[int, Verdict] = {}
    jobs: dict[int, Job] = {}
    for index, (completion, task) in enumerate(zip(completions, tasks, strict=True)):
        if task is None:
            verdicts[index] = broken(_NOWHERE, "", "the row names no known task")
            continue
        found = extract_source(completion) if source is None else _found(source(task, completion))
        if found.source is None:
            verdicts[index] = refused(task, found.reason)
        else:
            jobs[index] = Job(task, found.source)
    verdicts |= zip(jobs, scorer.verdicts(list(jobs.values()), reader), strict=True)
    return [verdicts[index] for index in range(len(completions))]


def _found(source: str | None) -> Extraction:
    return Extraction(source, "the completion stands for no source" if source is None else "text")


_NOWHERE = Task(id="unknown", source="")
