"""Problems: KernelBench's references by number, from a checkout or a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..tasks.model import Task, TaskError
from ..tasks.table import read_rows
from .evaluation import task_of

DEFAULT_DATASET = "KernelBench"
"""Where the problems lie in a checkout of KernelBench, seen from its root."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One reference. The fields are those of KernelBench's class of this name."""

    problem_id: int
    """Its number, counted from 1, with which the file's name begins."""
    name: str
    """The file's name with its `.py`, as KernelBench's baselines have it."""
    code: str
    level: int
    path: str | None = None

    def task(self) -> Task | str:
        """The problem as a task, or what is wrong with it."""
        identity = f"level{self.level}/{self.name.removesuffix('.py')}"
        return task_of(identity, self.code, self.level, self.path or self.name)


@dataclass(frozen=True, slots=True)
class Dataset:
    """The problems of one level."""

    level: int
    problems: Mapping[int, Problem] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.problems)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems.values())

    def get_problem_ids(self) -> list[int]:
        """All numbers, in order."""
        return sorted(self.problems)

    def get_problem_by_id(self, problem_id: int) -> Problem:
        """One problem.

        Raises:
            ValueError: there is none of this number.
        """
        if problem_id not in self.problems:
            raise ValueError(f"Problem ID {problem_id} not found in level {self.level}")
        return self.problems[problem_id]


def load_level(dataset: str | Path, level: int) -> Dataset:
    """The problems of a level.

    Args:
        dataset: a checkout of KernelBench, its folder `KernelBench`, the folder of one level, a
            `.jsonl` or `.parquet` table with the columns `code`, `level`, `name`, `problem_id`,
            or the name of a Hugging Face dataset with them.
        level: which level.

    Raises:
        TaskError: there is no such place, or it holds no problem of the level.
    """
    path = Path(dataset)
    if path.is_dir():
        found = list(_files(path, level))
    elif path.exists() or not path.is_absolute():
        found = list(_rows(str(dataset), level))
    else:
        raise TaskError(f"no problems at {dataset}")
    if not found:
        raise TaskError(f"{dataset} holds no problem of level {level}")
    return Dataset(level, {problem.problem_id: problem for problem in found})


def fetch_ref_arch_from_problem_id(
    problem_id: int | str, dataset: Any, with_name: bool = False
) -> str | tuple[str, str]:
    """The source of a problem, with its path or name if `with_name`.

    Args:
        problem_id: its number.
        dataset: anything with `get_problem_by_id`: a `Dataset`, or KernelBench's own.
        with_name: whether the path, or the name where there is none, is returned first.
    """
    problem = dataset.get_problem_by_id(int(problem_id))
    if not with_name:
        return problem.code
    return (problem.path if problem.path is not None else problem.name, problem.code)


def fetch_ref_arch_from_level_problem_id(
    level: int | str,
    problem_id: int | str,
    with_name: bool = False,
    *,
    dataset: str | Path = DEFAULT_DATASET,
) -> str | tuple[str, str]:
    """The same by level, from problems that lie at `dataset`."""
    return fetch_ref_arch_from_problem_id(problem_id, load_level(dataset, int(level)), with_name)


def _files(folder: Path, level: int) -> Iterator[Problem]:
    for place in (folder / "KernelBench" / f"level{level}", folder / f"level{level}", folder):
        if place.is_dir() and (place != folder or not any(folder.glob("level*"))):
            for path in sorted(place.glob("*.py")):
                number = re.match(r"\d+", path.name)
                if number:
                    yield Problem(int(number[0]), path.name, path.read_text(), level, str(path))
            return


def _rows(table: str, level: int) -> Iterator[Problem]:
    for count, row in enumerate(read_rows(table)):
        missing = [name for name in ("code", "level", "name", "problem_id") if name not in row]
        if missing:
            raise TaskError(f"{table}: no column {' or '.join(missing)} in row {count}")
        if int(row["level"]) == level:
            name = f"{str(row['name']).removesuffix('.py')}.py"
            yield Problem(int(row["problem_id"]), name, row["code"], level)
