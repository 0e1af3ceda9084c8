"""The catalog: where tasks come from, and how a name or a path becomes one."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from .kernelbench_folder import Loader, folder_loaders, load_folder, load_problem
from .model import ShapeFamily, Task, TaskError
from .table import load_table, table_loaders

SUITE = Path(__file__).parent / "suite"

_KEYS = (
    "level",
    "gradients",
    "dtypes",
    "allow_tf32",
    "domains",
    "base",
    "vary",
    "long",
    "waived",
)


@lru_cache(maxsize=1)
def suite() -> Mapping[str, Task]:
    """The built-in tasks by id, `class/problem`.

    Raises:
        TaskError: a `suite.toml` that names an unknown key or a problem without a file.
    """
    tasks: dict[str, Task] = {}
    for metadata in sorted(SUITE.glob("*/suite.toml")):
        for task in _read_class(metadata):
            tasks[task.id] = task
    return tasks


def _read_class(metadata: Path) -> Iterator[Task]:
    op_class = metadata.parent.name
    try:
        tables = tomllib.loads(metadata.read_text())
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{metadata}: not TOML: {error}") from error
    for name, table in sorted(tables.items()):
        unknown = sorted(set(table) - set(_KEYS))
        if unknown:
            raise TaskError(f"{metadata}: [{name}] has unknown keys {', '.join(unknown)}")
        source = metadata.parent / f"{name}.py"
        if not source.exists():
            raise TaskError(f"{metadata}: [{name}] has no file {source.name}")
        yield _task(f"{op_class}/{name}", op_class, source, table)


def _task(identity: str, op_class: str, source: Path, table: Mapping[str, Any]) -> Task:
    return Task(
        id=identity,
        source=source.read_text(),
        op_class=op_class,
        level=table.get("level", 1),
        family=ShapeFamily(
            base=table.get("base", {}),
            vary={name: tuple(values) for name, values in table.get("vary", {}).items()},
            long={**table.get("base", {}), **table.get("long", {})},
        ),
        domains=tuple(table.get("domains", ())),
        waived=table.get("waived", {}),
        dtypes=tuple(table.get("dtypes", ("float32",))),
        gradients=table.get("gradients", False),
        allow_tf32=table.get("allow_tf32", False),
        origin=str(source),
    )


def find_task(name: str) -> Task:
    """A task by suite id, or by the path of a file in the KernelBench convention.

    Raises:
        TaskError: neither is there.
    """
    tasks = suite()
    if name in tasks:
        return tasks[name]
    path = Path(name)
    if path.is_file():
        return load_problem(path)
    if path.suffix == ".py" or path.exists():
        raise TaskError(f"no task file at {name}")
    near = [known for known in tasks if name.rpartition("/")[2] in known.rpartition("/")[2]]
    hint = (
        f"; did you mean {' or '.join(sorted(near, key=len)[:3])}?"
        if near
        else "; `lethe tasks list` names them all"
    )
    raise TaskError(f"no task named {name}{hint}")


def task_loaders(source: str, level: int | None = None) -> Iterator[tuple[str, Loader]]:
    """Names of tasks with what loads each, so that one which cannot be loaded harms no other.

    Args:
        source: a suite id, a file, a KernelBench folder or a table, see `load_tasks`.
        level: only tasks of this KernelBench level.

    Raises:
        TaskError: nothing of that name, or nothing of that level.
    """
    path = Path(source)
    found: Iterator[tuple[str, int | None, Loader]]
    if path.is_dir():
        found = folder_loaders(path)
    elif path.suffix in (".jsonl", ".parquet"):
        found = table_loaders(source)
    else:
        found = iter([(source, None, partial(find_task, source))])
    chosen = [(name, load) for name, of, load in found if level is None or of == level]
    if not chosen:
        raise TaskError(f"{source} holds no problem of level {level}")
    yield from chosen


def load_tasks(source: str) -> Iterator[Task]:
    """Tasks by suite id, file, KernelBench folder or table.

    Raises:
        TaskError: nothing of that name, or a task that cannot be loaded.
    """
    path = Path(source)
    if source in suite() or (path.is_file() and path.suffix == ".py"):
        yield find_task(source)
    elif path.is_dir():
        yield from load_folder(path)
    elif path.suffix in (".jsonl", ".parquet"):
        yield from load_table(source)
    else:
        yield find_task(source)
