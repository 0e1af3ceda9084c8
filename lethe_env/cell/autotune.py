"""Autotuning without a clock: every configuration runs, and the judge says which one counts.

Triton times the configurations of a kernel on its first call, on the caller's buffers, and keeps
the fastest. Here the first call runs each of them once, in the same way and in the same order,
because what they leave behind is part of what a user would get; the choice is the judge's.
"""

from __future__ import annotations

from typing import Any

from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.errors import OutOfResources, PTXASError

from .launches import LaunchLog

TRIED_CONFIGURATIONS = 8
_UNFIT = (OutOfResources, CompileTimeAssertionFailure, PTXASError)


class Rotation:
    """Which configuration of every autotuned kernel counts."""

    def __init__(self, log: LaunchLog) -> None:
        self.number = 0
        self._log = log
        self._unfit: dict[int, set[int]] = {}

    def install(self) -> None:
        """Replace the clock-driven choice in this process."""
        rotation = self

        def run(tuner: Autotuner, *args: Any, **keywords: Any) -> Any:
            return rotation.run(tuner, args, keywords)

        Autotuner.run = run

    def run(self, tuner: Autotuner, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Try every configuration on the first call; launch the chosen one."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configurations = list(tuner.configs)
        if len(configurations) > 1:
            configurations = tuner.prune_configs(keywords)
        configurations = configurations[:TRIED_CONFIGURATIONS]
        if id(tuner) not in self._unfit and not self._log.mute:
            self._unfit[id(tuner)] = set()
            if len(configurations) > 1:
                self._try_all(tuner, configurations, args, keywords)
        unfit = self._unfit.get(id(tuner), set())
        fit = [config for config in configurations if id(config) not in unfit] or configurations
        chosen = fit[self.number % len(fit)]
        tuner.best_config = chosen
        if chosen.pre_hook is not None:
            chosen.pre_hook({**tuner.nargs, **keywords, **chosen.all_kwargs()})
        result = tuner.fn.run(*args, **keywords, **chosen.all_kwargs())
        tuner.nargs = None
        return result

    def _try_all(
        self,
        tuner: Autotuner,
        configurations: list[Config],
        args: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> None:
        for config in configurations:
            try:
                self._try(tuner, config, args, keywords)
            except _UNFIT:
                self._unfit[id(tuner)].add(id(config))
        last = configurations[-1]
        tuner.pre_hook({**tuner.nargs, **keywords, **last.all_kwargs()}, reset_only=True)

    def _try(
        self, tuner: Autotuner, config: Config, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        conflicts = keywords.keys() & config.kwargs.keys()
        if conflicts:
            raise ValueError(
                f"Conflicting meta-parameters: {', '.join(sorted(conflicts))}. "
                "They are autotuned and passed at the launch as well."
            )
        everything = {**tuner.nargs, **keywords, **config.all_kwargs()}
        if config.pre_hook:
            config.pre_hook(everything)
        tuner.pre_hook(everything)
        try:
            tuner.fn.run(*args, **keywords, **config.all_kwargs())
        except Exception as error:
            tuner.post_hook(everything, exception=error)
            raise
        tuner.post_hook(everything, exception=None)
