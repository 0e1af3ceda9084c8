"""The environment that a model talks to through a tool, for `environment_factory`.

TRL makes every public method of the class a tool, keeps instances and resets them, and never closes
them; so `reset`, `submit_kernel` and `get_reward` are all there is.
"""

from __future__ import annotations

from typing import Any

from ..env.feedback import feedback
from ..gates.verdict import Verdict
from ..reward.rewards import REWARDS
from ..reward.shape import RewardShape
from ..service.options import GraderOptions
from ..tasks.model import Task
from .episodes import best_reward
from .rows import judge_completions, tasks_of
from .scoring import Scorer, shared_scorer

READER = "submit_kernel"


class KernelToolEnv:
    """One episode at a time: a task, a budget of attempts, feedback after each.

    The reward of an episode is that of its best attempt, 0 without any, and `None` if the harness
    broke on all of them.

    Args:
        reward: what `get_reward` pays for: `contract`, `allclose` or `floor`.
        max_turns: attempts that are judged.
        shape: of the reward.
        options: how to grade, see `service.options`; `None` takes the process's own verifier.
        scorer: asked instead of the one that belongs to `options`.
    """

    def __init__(
        self,
        reward: str = "contract",
        max_turns: int = 4,
        shape: RewardShape | None = None,
        options: GraderOptions | None = None,
        scorer: Scorer | None = None,
    ) -> None:
        self._reward = REWARDS[reward](RewardShape() if shape is None else shape)
        self._max_turns = max_turns
        self._options = options
        self._scorer = scorer
        self._task: Task | None = None
        self._verdicts: list[Verdict] = []

    def reset(self, task: str | None = None, task_json: str | None = None, **row: Any) -> str:
        """Begin an episode.

        Args:
            task: id of the row's task.
            task_json: the task itself, where it is not in the suite.
            row: the other columns, not used.

        Returns:
            What is added to the prompt.

        Raises:
            ValueError: the dataset has no column of tasks.
        """
        names = None if task is None else [task]
        texts = None if task_json is None else [task_json]
        self._task = tasks_of(1, names, texts)[0]
        self._verdicts = []
        return (
            "\n\nHand in the file with the tool `submit_kernel`. You get a report on what is wrong "
            f"with it and may improve it; {self._max_turns} attempts are judged, the best counts."
        )

    def submit_kernel(self, source: str) -> str:
        """Have a kernel judged and get a report on what is wrong with it.

        Args:
            source: The complete Python file that defines ModelNew.

        Returns:
            The report.
        """
        turn = len(self._verdicts) + 1
        if turn > self._max_turns:
            return f"All {self._max_turns} attempts are spent; this one was not judged."
        scorer = shared_scorer(self._options) if self._scorer is None else self._scorer
        verdict = judge_completions([source], [self._task], scorer, READER)[0]
        self._verdicts.append(verdict)
        return f"{feedback(verdict)}\nAttempt {turn} of {self._max_turns}."

    def get_reward(self) -> float | None:
        """The reward of the best attempt so far."""
        return best_reward(self._reward, self._verdicts)


def attempts_in(environment: object) -> tuple[Verdict, ...] | None:
    """The verdicts of the current episode, `None` if the environment is of another kind."""
    return tuple(environment._verdicts) if isinstance(environment, KernelToolEnv) else None
