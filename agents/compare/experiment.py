"""The experiment from start to end: train twice, sample three policies, grade, report."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...service.jobs import Verifier
from ...tasks.model import Task
from .ledger import Ledger
from .report import write_report
from .student import Student
from .tables import Results
from .training import Settings, train

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ARMS = ("allclose", "contract")
"""The runs, named by the reward that is optimised."""
UNTRAINED = "untrained"

Progress = Callable[[str, int, int], None]
"""Called with the phase, what is done and what there is to do."""


def compare(
    student: Student,
    tasks: Sequence[Task],
    verifier: Verifier,
    settings: Settings,
    folder: Path,
    progress: Progress = lambda phase, done, total: None,
) -> Results:
    """Train both copies, grade samples of both and of the untrained policy, write the report.

    Args:
        student: what to train.
        tasks: what it is asked.
        verifier: judges everything that is written; the caller closes it.
        settings: of both runs.
        folder: where the report goes; it appears complete or not at all.
        progress: told how far the experiment is.

    Raises:
        FileExistsError: there is something at `folder`.
    """
    with _all_or_nothing(folder) as unfinished:
        phase = ""

        def graded(done: int, total: int) -> None:
            progress(f"{phase}: verdicts", done, total)

        ledger = Ledger(verifier, student, graded)
        models: dict[str, PreTrainedModel] = {UNTRAINED: student.fresh()}
        for arm in ARMS:
            phase = f"training on {arm}"
            progress(phase, 0, settings.steps)
            models[arm] = train(
                student,
                tasks,
                ledger,
                arm,
                settings,
                lambda step, name=phase: progress(name, step, settings.steps),  # type: ignore[misc]
            )
        for policy, model in models.items():
            phase = f"samples of {policy}"
            progress(phase, 0, 1)
            sample(student, model, tasks, ledger, policy, settings)
            progress(phase, 1, 1)
        results = Results(
            rows=tuple(ledger.rows),
            settings=settings,
            student=student.name,
            tasks=tuple(task.id for task in tasks),
        )
        write_report(results, unfinished)
    return results


def sample(
    student: Student,
    model: PreTrainedModel,
    tasks: Sequence[Task],
    ledger: Ledger,
    policy: str,
    settings: Settings,
) -> None:
    """Take and grade samples of every task, without moving torch's generator."""
    import torch

    model.eval()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(settings.seed)
        written = [student.sample(model, task, settings.samples) for task in tasks]
    asked = [task for task in tasks for _ in range(settings.samples)]
    ledger.record(policy, None, asked, [text for texts in written for text in texts])


@contextmanager
def _all_or_nothing(folder: Path) -> Iterator[Path]:
    """A new folder beside the wanted one, which takes its name at the end, or goes away."""
    if folder.exists():
        raise FileExistsError(f"{folder} exists; choose another folder for the report")
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield unfinished
        unfinished.chmod(0o777 & ~_umask())
        os.replace(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
