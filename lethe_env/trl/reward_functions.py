"""Reward functions in the form that TRL's trainers call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..reward.rewards import REWARDS
from ..reward.shape import RewardShape
from ..service.options import GraderOptions
from .episodes import Attempts, best_reward
from .metrics import columns, metrics
from .rows import SourceOf, judge_completions, tasks_of
from .scoring import Scorer, shared_scorer
from .tool_env import attempts_in


class RewardFunction:
    """One reward for `reward_funcs`; any number of them share one verification per completion.

    Calling it never raises because of a completion, and returns finite numbers or, where the
    harness broke, `None`; then every other reward function of the step returns `None` too.

    Args:
        name: `contract`, `allclose` or `floor`; in logs the function is `<name>_reward`.
        shape: what each part of a verdict is worth.
        options: how to grade, see `service.options`; `None` takes the process's own verifier.
        scorer: asked instead of the one that belongs to `options`. It does not pickle; without it
            the function does.
        source: finds the source text in a completion, where it is not written out in a text or a
            chat; it must not raise.
    """

    def __init__(
        self,
        name: str,
        shape: RewardShape | None = None,
        options: GraderOptions | None = None,
        scorer: Scorer | None = None,
        source: SourceOf | None = None,
    ) -> None:
        self.shape = RewardShape() if shape is None else shape
        self.reward = REWARDS[name](self.shape)
        self.options = options
        self._scorer = scorer
        self._source = source
        self.__name__ = f"{name}_reward"

    def __call__(
        self,
        completions: Sequence[Any],
        *,
        task: Sequence[str] | None = None,
        task_json: Sequence[str] | None = None,
        environments: Sequence[object] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **row: Any,
    ) -> list[float | None]:
        """Score a batch.

        Args:
            completions: texts, or lists of chat messages.
            task: the dataset's column of task ids.
            task_json: the dataset's column of tasks as JSON.
            environments: one per completion where a model used tools; the best attempt counts, and
                the completion's own text does not.
            log_metric: the trainer's.
            log_extra: the trainer's.
            row: whatever else the trainer passes, not used.

        Raises:
            ValueError: the dataset has no column of tasks, or its columns have another length.
        """
        scorer = shared_scorer(self.options) if self._scorer is None else self._scorer
        if environments is None:
            tasks = tasks_of(len(completions), task, task_json)
            verdicts = judge_completions(completions, tasks, scorer, self.__name__, self._source)
            batch: list[Attempts] = [[verdict] for verdict in verdicts]
            scores = [best_reward(self.reward, attempts) for attempts in batch]
        else:
            episodes = [attempts_in(environment) for environment in environments]
            scores = [None if e is None else best_reward(self.reward, e) for e in episodes]
            batch = [episode or () for episode in episodes]
        if scorer.report_once(completions):
            self._log(batch, log_metric, log_extra)
        return scores

    def _log(
        self,
        batch: Sequence[Attempts],
        log_metric: Callable[[str, float], None] | None,
        log_extra: Callable[[str, list[Any]], None] | None,
    ) -> None:
        if log_metric is not None:
            for name, value in metrics(batch, self.shape).items():
                log_metric(name, value)
        if log_extra is not None:
            for name, values in columns(batch, self.shape).items():
                log_extra(name, values)


contract_reward = RewardFunction("contract")
"""The contract reward of the process's own verifier, `lethe_env.trl.contract_reward`."""
allclose_reward = RewardFunction("allclose")
"""KernelBench's rule, `lethe_env.trl.allclose_reward`."""
floor_reward = RewardFunction("floor")
"""The tolerance-free floor, `lethe_env.trl.floor_reward`."""
