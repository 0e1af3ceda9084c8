"""Selection of tasks: from ids, op classes, paths or tasks to the tasks themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ..tasks.catalog import load_tasks, suite
from ..tasks.model import OP_CLASSES, Task, TaskError

Selector = str | Path | Task
Selection = Selector | Iterable[Selector] | None


def select_tasks(selection: Selection) -> tuple[Task, ...]:
    """The chosen tasks, each once, in the order in which they are named.

    Args:
        selection: `None` for the whole suite; a suite id, an op class, a file, a KernelBench
            folder, a table, a task; or several of these.

    Raises:
        TaskError: nothing of that name, nothing at all, or two tasks of one id.
    """
    if selection is None:
        return tuple(suite().values())
    if isinstance(selection, Selector):
        selection = [selection]
    chosen: dict[str, Task] = {}
    for selector in selection:
        for task in _selected(selector):
            if chosen.setdefault(task.id, task) != task:
                raise TaskError(f"two different tasks have the id {task.id}")
    if not chosen:
        raise TaskError("no task was chosen; `None` stands for the whole suite")
    return tuple(chosen.values())


def _selected(selector: Selector) -> Iterator[Task]:
    if isinstance(selector, Task):
        yield selector
    elif selector in OP_CLASSES:
        yield from (task for task in suite().values() if task.op_class == selector)
    else:
        yield from load_tasks(str(selector))
