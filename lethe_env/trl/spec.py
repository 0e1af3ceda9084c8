"""The specification of a training run: what a trainer needs to know about the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..env.prompt import task_messages
from ..reward.rewards import REWARDS
from ..reward.shape import RewardShape
from ..service.jobs import Verifier
from ..service.options import GraderOptions
from ..tasks.catalog import load_tasks, suite
from ..tasks.model import Task
from .reward_functions import RewardFunction
from .rows import SourceOf, row_of
from .scoring import Scorer
from .tool_env import KernelToolEnv

if TYPE_CHECKING:
    from datasets import Dataset

Tasks = str | Task | Iterable[str | Task]


class LetheSpec:
    """Tasks, rewards and, for several turns, the environment of a run.

        spec = LetheSpec(tasks=["softmax/softmax"], reward="contract")
        settings = GRPOConfig(reward_weights=spec.reward_weights, ...)
        GRPOTrainer(model, args=settings, **spec.trainer_arguments)

    Every reward is computed and logged whichever is optimised; `reward_weights` makes the choice.

    Args:
        tasks: suite ids, KernelBench files, folders or tables, or tasks; `None` is the whole suite.
        reward: what is optimised: `contract`, `allclose` or `floor`.
        eval_tasks: likewise, for evaluation; `None` is no evaluation.
        multi_turn: whether the model hands in kernels through a tool and gets feedback.
        max_turns: attempts per episode if `multi_turn`.
        prompt: makes a row's `prompt`, chat messages or text, from a task.
        source: finds the source text in a completion, for a model that does not write it out.
        shape: what each part of a verdict is worth.
        options: how to grade; `None` is the defaults on the node's broker.
        verifier: asked instead of the broker, in this process alone.

    Raises:
        TaskError: a task that is not there or cannot be loaded.
        ValueError: an unknown reward, no task, or no turn.
    """

    def __init__(
        self,
        tasks: Tasks | None = None,
        *,
        reward: str = "contract",
        eval_tasks: Tasks | None = None,
        multi_turn: bool = False,
        max_turns: int = 4,
        prompt: Callable[[Task], list[dict[str, str]] | str] = task_messages,
        source: SourceOf | None = None,
        shape: RewardShape | None = None,
        options: GraderOptions | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        if reward not in REWARDS:
            raise ValueError(f"unknown reward {reward!r}; there are {', '.join(REWARDS)}")
        if max_turns < 1:
            raise ValueError(f"max_turns is {max_turns}; an episode has at least one turn")
        self.tasks = tuple(suite().values()) if tasks is None else tuple(_loaded(tasks))
        if not self.tasks:
            raise ValueError("LetheSpec: there is no task to train on")
        self.eval_tasks = () if eval_tasks is None else tuple(_loaded(eval_tasks))
        self.reward = reward
        self.multi_turn = multi_turn
        self.max_turns = max_turns
        self.shape = RewardShape() if shape is None else shape
        self._prompt = prompt
        self._source = source
        self._options = options
        self._scorer = None if verifier is None else Scorer(verifier)

    @cached_property
    def train_dataset(self) -> Dataset:
        """One row per task: `prompt`, `task`, and `task_json` where the suite lacks the task."""
        return self._dataset(self.tasks)

    @cached_property
    def eval_dataset(self) -> Dataset | None:
        """Likewise for `eval_tasks`."""
        return self._dataset(self.eval_tasks) if self.eval_tasks else None

    @cached_property
    def reward_funcs(self) -> list[RewardFunction]:
        """One function per reward."""
        return [
            RewardFunction(name, self.shape, self._options, self._scorer, self._source)
            for name in REWARDS
        ]

    @property
    def reward_weights(self) -> list[float]:
        """1 for the reward that is optimised.

        All are 0 with several turns, as TRL adds the environment's `get_reward` with weight 1.
        """
        return [float(name == self.reward and not self.multi_turn) for name in REWARDS]

    @property
    def environment_factory(self) -> Callable[[], KernelToolEnv] | None:
        """Makes environments if there are several turns."""
        if not self.multi_turn:
            return None
        return partial(
            KernelToolEnv, self.reward, self.max_turns, self.shape, self._options, self._scorer
        )

    @property
    def trainer_arguments(self) -> dict[str, Any]:
        """`train_dataset`, `eval_dataset`, `reward_funcs`, with turns `environment_factory` too."""
        arguments: dict[str, Any] = {
            "train_dataset": self.train_dataset,
            "eval_dataset": self.eval_dataset,
            "reward_funcs": self.reward_funcs,
        }
        if self.multi_turn:
            arguments["environment_factory"] = self.environment_factory
        return arguments

    def save(self, folder: str | Path) -> None:
        """Write `train.jsonl` and `test.jsonl`, for trainers that are told a `dataset_name`."""
        for name, dataset in (("train", self.train_dataset), ("test", self.eval_dataset)):
            if dataset is not None:
                dataset.to_json(Path(folder) / f"{name}.jsonl")

    def _dataset(self, tasks: Iterable[Task]) -> Dataset:
        from datasets import Dataset

        rows: list[dict[str, Any]] = [
            {"prompt": self._prompt(task), **row_of(task)} for task in tasks
        ]
        return Dataset.from_list(rows)


def _loaded(tasks: Tasks) -> Iterator[Task]:
    for item in [tasks] if isinstance(tasks, str | Task) else tasks:
        if isinstance(item, Task):
            yield item
        else:
            yield from load_tasks(item)
