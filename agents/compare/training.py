"""Training one copy of a student with GRPO on one of the two rewards."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...tasks.model import Task
from .ledger import Ledger
from .student import Student

if TYPE_CHECKING:
    from transformers import PreTrainedModel

REWARDS = ("contract", "allclose")
"""Both are computed and logged in every run; only their weights differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What both runs have in common."""

    steps: int = 24
    """Optimiser steps; each asks for every task."""
    generations: int = 8
    """Completions of each prompt at each step, the group that GRPO compares."""
    samples: int = 32
    """Completions of each prompt that are taken of every policy after training."""
    seed: int = 0
    """Of the weights, the data order and the sampling."""


def train(
    student: Student,
    tasks: Sequence[Task],
    ledger: Ledger,
    reward: str,
    settings: Settings,
    on_step: Callable[[int], None] = lambda step: None,
) -> PreTrainedModel:
    """Train a fresh copy.

    Args:
        student: what to train.
        tasks: what it is asked, all of them at every step.
        ledger: grades and keeps everything it writes, under the reward's name.
        reward: one of `REWARDS`; the other one is logged only.
        settings: of the run.
        on_step: told the number of every step that is done.
    """
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    rows = [{"prompt": student.prompt(task), "task": task.id} for task in tasks]
    with tempfile.TemporaryDirectory(prefix="lethe-compare-") as folder, _unwarned():
        trainer = GRPOTrainer(
            model=student.fresh(),
            processing_class=student.tokenizer,
            peft_config=student.adapter,
            reward_funcs=[_logged(name, reward, tasks, ledger) for name in REWARDS],
            args=_arguments(student, len(tasks), reward, settings, folder),
            train_dataset=Dataset.from_list(rows),
            callbacks=[_progress(on_step)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    model: PreTrainedModel = trainer.model
    return model


@contextmanager
def _unwarned() -> Iterator[None]:
    """Without the warnings that TRL's own arguments draw from transformers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
        yield


def _arguments(student: Student, tasks: int, reward: str, settings: Settings, folder: str) -> Any:
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=folder,
        max_steps=settings.steps,
        num_generations=settings.generations,
        per_device_train_batch_size=tasks * settings.generations,
        reward_weights=[float(name == reward) for name in REWARDS],
        seed=settings.seed,
        lr_scheduler_type="constant",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **student.training,
    )


def _logged(name: str, policy: str, tasks: Sequence[Task], ledger: Ledger) -> Any:
    """A reward function as TRL calls it."""
    by_id = {task.id: task for task in tasks}

    def reward(
        completions: Sequence[Any], *, task: Sequence[str], trainer_state: Any, **_: Any
    ) -> list[float | None]:
        asked = [by_id[each] for each in task]
        graded = ledger.record(policy, trainer_state.global_step, asked, completions)
        return [getattr(candidate, f"{name}_reward") for candidate in graded]

    reward.__name__ = f"{name}_reward"
    return reward


def _progress(on_step: Callable[[int], None]) -> Any:
    from transformers import TrainerCallback

    class Progress(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            on_step(state.global_step)

    return Progress()
