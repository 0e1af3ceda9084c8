"""The environment: a PyTorch module in, Triton source out, a verdict for a reward."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Dict, Discrete

from ..gates.verdict import Verdict
from ..rendering import verdict_text
from ..reward import REWARDS, RewardShape
from ..service.client import connect
from ..service.jobs import Job, Verifier
from ..service.options import GraderOptions
from ..tasks.model import Task
from .feedback import feedback
from .prompt import task_prompt
from .report import refused, verdict_info, worth
from .selection import Selection, select_tasks
from .spaces import SourceText

if TYPE_CHECKING:
    from .evaluation import Evaluation

OBSERVATION_CHARACTERS = 1 << 22
"""Longest text in an observation; a prompt holds a whole reference."""

Observation = dict[str, Any]
Step = tuple[Observation, float, bool, bool, dict[str, Any]]


class KernelEnv(gymnasium.Env[Observation, str]):
    """One task an episode, one candidate a step.

    The observation holds `task` (its id), `prompt`, `reference` (source text), `feedback` on the
    last turn, `turn` (turns taken) and `turns_left`. An episode ends when a candidate passes the
    contract or the turns are spent; the environment itself never truncates. A step's reward is
    the improvement over the best earlier turn, so that the return is the reward of the best
    verdict. `info["status"]` is `pass`, `fail`, or `infra` if the harness broke, which is worth
    0.0 and no evidence against the candidate: leave such steps out of what you learn from.

    Args:
        tasks: what to choose from, see `select_tasks`.
        reward: `contract`, `allclose`, `floor`, or a function of the verdict.
        device: `auto`, `cuda`, `vgpu` or `interpreter`; left aside if `options` are given.
        max_turns: candidates a policy may submit in one episode.
        verifier: judges the candidates; the caller closes it. By default the broker of this user.
        options: how the broker grades.
        workers: processes of the broker.
        timed: adds `time_s`, seconds by phase, and where it is known `speedup` over eager PyTorch
            to `info`, which is then different every time.
        render_mode: `ansi` makes `render` return the verdict table, `human` prints it on standard
            error after every step.

    Raises:
        TaskError: a task that is not there.
        ValueError: an unknown reward or render mode, or no turn.
    """

    action_space: SourceText
    metadata = {"render_modes": ["ansi", "human"], "render_fps": 1}  # noqa: RUF012 - Gymnasium's

    def __init__(
        self,
        tasks: Selection = None,
        reward: str | Callable[[Verdict], float | None] = "contract",
        device: str = "auto",
        max_turns: int = 1,
        *,
        verifier: Verifier | None = None,
        options: GraderOptions | None = None,
        workers: int | None = None,
        timed: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if max_turns < 1:
            raise ValueError(f"max_turns is {max_turns}; an episode needs at least one turn")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"no render mode {render_mode!r}; known: ansi, human")
        self.tasks = select_tasks(tasks)
        self.max_turns = max_turns
        self.render_mode = render_mode
        self.verdict: Verdict | None = None
        """The last verdict, with everything that `info` leaves out."""
        self._reward = _reward(reward)
        self._options = options or GraderOptions(device=device)
        self._workers = workers
        self._given = verifier
        self._own: Verifier | None = None
        self._timed = timed
        self._task: Task | None = None
        self._turn = 0
        self._best: float | None = None
        text, count = SourceText(OBSERVATION_CHARACTERS), Discrete(max_turns + 1)
        self.observation_space = Dict(
            {
                **{key: text for key in ("task", "prompt", "reference", "feedback")},
                **{key: count for key in ("turn", "turns_left")},
            }
        )
        self.action_space = SourceText()

    @property
    def verifier(self) -> Verifier:
        """Who judges; the broker is connected on first use."""
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = connect(self._options, self._workers)
        return self._own

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: picks the task, unless `options` name it.
            options: `{"task": id}` to choose the task.

        Raises:
            ValueError: an option or a task that this environment does not have.
        """
        super().reset(seed=seed)
        self._task = self._chosen(dict(options or {}))
        self._turn, self._best, self.verdict = 0, None, None
        return self._observation(), {"task": self._task.id, "op_class": self._task.op_class}

    def step(self, action: str) -> Step:
        """Submit one candidate.

        Raises:
            ResetNeeded: there is no episode, or it is over.
        """
        proposal = self.propose(action)
        if isinstance(proposal, Verdict):
            return self.conclude(proposal)
        return self.conclude(self.verifier.grade_many([proposal])[0])

    def propose(self, action: Any) -> Job | Verdict:
        """First half of a step: the job to grade, or the verdict on an action that is no source.

        Raises:
            ResetNeeded: there is no episode, or it is over.
        """
        if self._task is None:
            raise ResetNeeded("there is no episode to step in; call `reset` first")
        objection = self.action_space.objection(action)
        return refused(self._task, objection) if objection else Job(self._task, action)

    def conclude(self, verdict: Verdict) -> Step:
        """Second half of a step: what the verdict on the proposal means for the episode.

        Raises:
            ResetNeeded: there is no episode, or it is over.
        """
        task = self._task
        if task is None:
            raise ResetNeeded("there is no episode to conclude; call `reset` first")
        self.verdict = verdict
        self._turn += 1
        value = worth(verdict, self._reward)
        gain = self._gain(value)
        info = {
            "task": task.id,
            "op_class": task.op_class,
            "turn": self._turn,
            "verdict_reward": 0.0 if value is None else value,
            **verdict_info(verdict),
        }
        if value is None:
            info["status"] = "infra"
        if self._timed:
            info["time_s"] = dict(verdict.time_s)
            if verdict.speed is not None:
                info |= {"speedup": verdict.speed.speedup, "speed_kind": verdict.speed.kind}
        observation = self._observation()
        terminated = verdict.passed or self._turn >= self.max_turns
        if self.render_mode == "human":
            print(self._view(), file=sys.stderr)
        if terminated:
            self._task = None
        return observation, gain, terminated, False, info

    def render(self) -> str | None:
        """The verdict table as text in mode `ansi`; in mode `human` a step has printed it."""
        return self._view() if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Leave the broker; a verifier that was given stays open."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def evaluate(self, kernels: Any, n: int = 1, **settings: Any) -> Evaluation:
        """Grade many kernels, or what a policy writes, on this environment's tasks.

        See `lethe_env.evaluate`, whose other arguments it takes.
        """
        from .evaluation import evaluate

        settings.setdefault("max_turns", self.max_turns)
        return evaluate(kernels, self.tasks, n=n, verifier=self.verifier, **settings)

    def _gain(self, value: float | None) -> float:
        if value is None:
            return 0.0
        gain = value if self._best is None else max(0.0, value - self._best)
        self._best = value if self._best is None else max(value, self._best)
        return gain

    def _chosen(self, options: dict[str, Any]) -> Task:
        name = options.pop("task", None)
        if options:
            raise ValueError(f"unknown options {', '.join(map(str, options))}; known: task")
        if name is None:
            return self.tasks[int(self.np_random.integers(len(self.tasks)))]
        for task in self.tasks:
            if task.id == name:
                return task
        raise ValueError(f"this environment has no task {name!r}; see `env.unwrapped.tasks`")

    def _observation(self) -> Observation:
        task = self._task
        if task is None:
            raise ResetNeeded("there is no episode to observe; call `reset` first")
        return {
            "task": task.id,
            "prompt": task_prompt(task),
            "reference": task.source,
            "feedback": feedback(self.verdict) if self.verdict is not None else "",
            "turn": self._turn,
            "turns_left": self.max_turns - self._turn,
        }

    def _view(self) -> str:
        if self.verdict is None:
            return "no verdict yet"
        title = f"{self.verdict.task['id']}, turn {self._turn} of {self.max_turns}"
        return verdict_text(self.verdict, title)


def _reward(reward: str | Callable[[Verdict], float | None]) -> Callable[[Verdict], float | None]:
    if callable(reward):
        return reward
    if reward not in REWARDS:
        raise ValueError(f"no reward {reward!r}; known: {', '.join(REWARDS)}, or a function")
    return REWARDS[reward](RewardShape())
