"""Many environments at once, all of them judged by one pool in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from ..gates.verdict import Verdict
from ..service.jobs import Job
from .kernel_env import KernelEnv, Observation, Step

Infos = dict[str, Any]


class KernelVectorEnv(VectorEnv):
    """As many episodes as `num_envs`; a step grades all candidates side by side.

    Texts of the batched observation are tuples of strings, counts are arrays.

    Args:
        num_envs: how many episodes.
        autoreset_mode: `NEXT_STEP` begins a new episode with the step after a last one and
            ignores that step's action; `DISABLED` leaves it to `reset`, all at once or with
            `options={"reset_mask": mask}`.
        settings: arguments of `KernelEnv`, equal for all.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        **settings: Any,
    ) -> None:
        mode = AutoresetMode(autoreset_mode)
        if mode is AutoresetMode.SAME_STEP:
            raise ValueError("autoreset in the same step is not supported")
        self.num_envs = num_envs
        self.envs = tuple(KernelEnv(**settings) for _ in range(num_envs))
        self.metadata = {**KernelEnv.metadata, "autoreset_mode": mode}
        self.render_mode = self.envs[0].render_mode
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._observations: list[Observation] = []
        self._over = np.zeros(num_envs, dtype=np.bool_)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[dict[str, Any], Infos]:
        """Begin episodes.

        Args:
            seed: one for each environment, or the first one's, the others counting up from it.
            options: as for `KernelEnv`; `reset_mask` (num_envs,) bool leaves others as they are.
        """
        seeds = self._seeds(seed)
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        chosen = np.ones(self.num_envs, np.bool_) if mask is None else np.asarray(mask, np.bool_)
        if not self._observations and not chosen.all():
            raise ValueError("the first reset has to begin all episodes")
        self._observations = self._observations or [{} for _ in self.envs]
        infos: Infos = {}
        for index in np.flatnonzero(chosen):
            self._begin(int(index), seeds[index], options, infos)
        self._over = self._over & ~chosen
        return self._batched(), infos

    def step(
        self, actions: Sequence[str]
    ) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray, Infos]:
        """Submit one candidate in each environment.

        Raises:
            ResetNeeded: an episode is over, and autoreset is disabled.
        """
        if len(actions) != self.num_envs:
            raise ValueError(f"{len(actions)} actions for {self.num_envs} environments")
        stepping = [index for index in range(self.num_envs) if not self._resets(index)]
        steps = self._steps({index: actions[index] for index in stepping})
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        infos: Infos = {}
        for index in range(self.num_envs):
            if index not in steps:
                self._begin(index, None, {}, infos)
                continue
            observation, rewards[index], terminated[index], _, info = steps[index]
            self._observations[index] = observation
            infos = self._add_info(infos, info, index)
        self._over = terminated.copy()
        return self._batched(), rewards, terminated, np.zeros_like(terminated), infos

    def render(self) -> tuple[str, ...] | None:
        """The verdict tables in mode `ansi`."""
        shown = [env.render() for env in self.envs]
        return tuple(filter(None, shown)) if self.render_mode == "ansi" else None

    def close_extras(self, **_: Any) -> None:
        """Leave the broker."""
        for env in self.envs:
            env.close()

    def _resets(self, index: int) -> bool:
        automatic = self.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        return automatic and bool(self._over[index])

    def _steps(self, actions: dict[int, str]) -> dict[int, Step]:
        proposals = {index: self.envs[index].propose(action) for index, action in actions.items()}
        jobs = {index: job for index, job in proposals.items() if isinstance(job, Job)}
        graded = self.envs[0].verifier.grade_many(list(jobs.values())) if jobs else []
        verdicts: dict[int, Job | Verdict] = {**proposals, **dict(zip(jobs, graded, strict=True))}
        return {
            index: self.envs[index].conclude(verdict)
            for index, verdict in verdicts.items()
            if isinstance(verdict, Verdict)
        }

    def _begin(self, index: int, seed: int | None, options: dict[str, Any], infos: Infos) -> None:
        self._observations[index], info = self.envs[index].reset(seed=seed, options=options)
        self._add_info(infos, info, index)

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None or isinstance(seed, int | np.integer):
            return [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"{len(seed)} seeds for {self.num_envs} environments")
        return list(seed)

    def _batched(self) -> dict[str, Any]:
        space = self.single_observation_space
        empty: Any = create_empty_array(space, self.num_envs)
        batch: Any = concatenate(space, self._observations, empty)
        return batch
