"""Tasks from a KernelBench checkout: `level1/23_Softmax.py` and its neighbours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from .classification import guessed_op_class
from .model import Task, TaskError
from .shrinking import fitted_family

Loader = Callable[[], Task]
"""Loads one task, which takes a while: its shape family is found by trial."""


def load_problem(path: Path) -> Task:
    """One problem file as a task; its shape family is found by rebinding its size constants.

    Raises:
        TaskError: no such file, not Python, or a reference that fails.
    """
    if not path.is_file():
        raise TaskError(f"no task file at {path}")
    source = path.read_text()
    return foreign_task(_identity(path), source, level=_level(path), origin=str(path))


def load_folder(folder: Path) -> Iterator[Task]:
    """Every problem below a folder, in the order of their numbers.

    Raises:
        TaskError: the folder holds no problem, or one that cannot be loaded.
    """
    for _, _, load in folder_loaders(folder):
        yield load()


def folder_loaders(folder: Path) -> Iterator[tuple[str, int | None, Loader]]:
    """Name, level and loader of every problem below a folder, in the order of their numbers.

    Raises:
        TaskError: the folder holds no problem.
    """
    paths = [p for p in folder.rglob("*.py") if not p.name.startswith("_")]
    if not paths:
        raise TaskError(f"no KernelBench problem (*.py) below {folder}")
    for path in sorted(paths, key=lambda p: (str(p.parent), _number(p), p.name)):
        yield _identity(path), _level(path), partial(load_problem, path)


def foreign_task(identity: str, source: str, *, level: int | None, origin: str) -> Task:
    """A task from a bare reference source, with everything else inferred."""
    family = fitted_family(source, origin)  # says so if the source is not Python
    op_class = guessed_op_class(identity, source)
    return Task(
        id=identity,
        source=source,
        op_class=op_class,
        level=level,
        family=family,
        allow_tf32=op_class == "conv",  # PyTorch's own default: cudnn.allow_tf32 is on
        origin=origin,
    )


def _identity(path: Path) -> str:
    level = _level(path)
    return f"level{level}/{path.stem}" if level is not None else path.stem


def _level(path: Path) -> int | None:
    for part in reversed(path.parts[:-1]):
        match = re.fullmatch(r"level_?(\d)", part)
        if match:
            return int(match[1])
    return None


def _number(path: Path) -> int:
    match = re.match(r"\d+", path.name)
    return int(match[0]) if match else 0
