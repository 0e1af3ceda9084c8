"""Candidates: from what the caller has to attempts, each one candidate for one task."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..tasks.catalog import suite
from ..tasks.model import Task
from .policies import Policy, as_policy
from .selection import Selection, select_tasks

Sources = str | bytes | Path | Sequence[str | Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One sample to be taken."""

    task: Task
    number: int
    """Counts the attempts at one task from 0."""
    action: Any = None
    """What is submitted; `None` if a policy is to be asked."""
    origin: str = ""
    """The file that it was read from."""

    @property
    def key(self) -> str:
        """Equal for attempts that need not be made twice."""
        given = repr(self.action).encode("utf-8", "surrogatepass")
        content = hashlib.sha256(given).hexdigest()[:16] if self.action is not None else "policy"
        return f"{self.task.digest} {self.number} {content}"


def attempts(kernels: Any, tasks: Selection, n: int) -> tuple[list[Attempt], Policy | None]:
    """Every sample to be taken, and the policy to ask, if there is one.

    Args:
        kernels: see `lethe_env.evaluate`.
        tasks: see `select_tasks`.
        n: samples a task, for a policy.

    Raises:
        TaskError: a task that is not there.
        ValueError: nothing to evaluate, or no telling which task a source is for.
        TypeError: `kernels` is nothing that could be evaluated.
        OSError: a file that is not there or cannot be read.
    """
    policy = as_policy(kernels)
    if n < 1:
        raise ValueError(f"n is {n}; at least one sample a task is needed")
    if policy is not None:
        return _asked(select_tasks(tasks), n), policy
    if n != 1:
        raise ValueError(
            "n samples are drawn from a policy; several sources for one task are a list"
        )
    found = list(_given(kernels, tasks))
    if not found:
        raise ValueError("there is no kernel to evaluate")
    return found, None


def _asked(tasks: Iterable[Task], n: int) -> list[Attempt]:
    return [Attempt(task=task, number=number) for task in tasks for number in range(n)]


def _given(kernels: Any, tasks: Selection) -> Iterator[Attempt]:
    if (isinstance(kernels, Path) or _is_file_name(kernels)) and not Path(kernels).exists():
        raise FileNotFoundError(f"there is no kernel and no folder at {kernels}")
    if isinstance(kernels, Mapping):
        yield from _mapped(kernels, tasks)
    elif isinstance(kernels, str | Path) and _is_folder(kernels):
        yield from _in_folder(Path(kernels), tasks)
    elif isinstance(kernels, str | Path | Sequence):
        yield from _of_one(_only(select_tasks(tasks)), kernels)
    else:
        raise TypeError(
            f"cannot evaluate {type(kernels).__name__}: give a source, a list, a mapping from task "
            "to sources, a folder, something with `act(observation)`, or a text-generation pipeline"
        )


def _only(tasks: tuple[Task, ...]) -> Task:
    if len(tasks) != 1:
        raise ValueError(
            f"{len(tasks)} tasks are chosen, and a source names none: choose one, or give a "
            "mapping from task to sources"
        )
    return tasks[0]


def _mapped(kernels: Mapping[Any, Sources], tasks: Selection) -> Iterator[Attempt]:
    chosen = {task.id: task for task in select_tasks(tasks)} if tasks is not None else None
    for name, sources in kernels.items():
        if chosen is None:
            task = _only(select_tasks(name))
        elif (name.id if isinstance(name, Task) else name) in chosen:
            task = chosen[name.id if isinstance(name, Task) else name]
        else:
            raise ValueError(f"{name} is not among the chosen tasks: {', '.join(chosen)}")
        yield from _of_one(task, sources)


def _of_one(task: Task, sources: Sources) -> Iterator[Attempt]:
    listed = [sources] if isinstance(sources, str | bytes | Path) else list(sources)
    for number, source in enumerate(listed):
        yield _attempt(task, number, source)


def _attempt(task: Task, number: int, source: Any) -> Attempt:
    if isinstance(source, Path) or _is_file_name(source):
        # Bytes that are no UTF-8 become surrogates, which the action space refuses by name.
        text = Path(source).read_bytes().decode("utf-8", "surrogateescape")
        return Attempt(task=task, number=number, action=text, origin=str(source))
    return Attempt(task=task, number=number, action="" if source is None else source)


def _is_file_name(source: Any) -> bool:
    """A text of one line that ends in `.py` is no kernel."""
    return isinstance(source, str) and source.endswith(".py") and "\n" not in source


def _is_folder(name: str | Path) -> bool:
    if isinstance(name, str) and ("\n" in name or len(name) > 4096):
        return False
    return Path(name).is_dir()


def _in_folder(folder: Path, tasks: Selection) -> Iterator[Attempt]:
    """Files whose path below the folder begins with a task's id, `/` and `__` being the same.

    `elementwise__relu.py`, `elementwise__relu_v2.py`, `elementwise/relu.py` and
    `elementwise/relu/v2.py` are all for `elementwise/relu`. Where two ids fit, the longer one
    counts. Names that begin with `_` or a dot are skipped; tasks without a file are left out.
    """
    chosen = {task.id: task for task in select_tasks(tasks)}
    known = {name.replace("/", "__"): name for name in (*suite(), *chosen)}
    strays, counts = [], Counter[str]()
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if any(part.startswith(("_", ".")) for part in parts):
            continue
        name = _task_name("__".join(parts), known)
        if name is None:
            strays.append(str(path.relative_to(folder)))
        elif name in chosen:
            yield _attempt(chosen[name], counts[name], path)
            counts[name] += 1
    if strays:
        raise ValueError(
            f"{folder}: no task fits {', '.join(strays[:5])}{' …' if strays[5:] else ''}; a kernel "
            "for class/problem is named class__problem*.py or lies in class/problem/"
        )


def _task_name(stem: str, known: Mapping[str, str]) -> str | None:
    fitting = [
        prefix
        for prefix in known
        if stem.startswith(prefix) and not stem[len(prefix) :][:1].isalnum()
    ]
    return known[max(fitting, key=len)] if fitting else None
