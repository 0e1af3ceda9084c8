"""Autotuning without a clock: every configuration runs, and the judge says which one counts.

Triton times the configurations of a kernel on its first call, on the caller's buffers, and keeps
the fastest. Here the first call runs each of them once, in the same way and in the same order,
because what they leave behind is part of what a user would get; the choice is the judge's. Only
a timed call takes the fastest, by modelled time, or by Triton's own clock on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner, Config, Heuristics
from triton.runtime.errors import OutOfResources, PTXASError
from triton.runtime.jit import JITFunction

from ..vgpu.timing import TARGETS, Counts, Target, modelled_time_us
from .launches import LaunchLog
from .requests import CONFIGURATION_LIMIT
from .side_by_side import SideBySide

NAMED = 16
"""Left out configurations that are named; the rest is counted."""
_UNFIT = (OutOfResources, CompileTimeAssertionFailure, PTXASError)
_TEXT_CHARACTERS = 200

Launches = list[tuple[str, Counts]]


@dataclass(slots=True)
class _Tried:
    """What became of one tuner's configurations, by identity."""

    unfit: set[int] = field(default_factory=set)
    left_out: dict[int, str] = field(default_factory=dict)

    def fitting(self, configurations: list[Config]) -> list[Config]:
        out = self.unfit | self.left_out.keys()
        return [config for config in configurations if id(config) not in out]


class Rotation:
    """Which configuration of every autotuned kernel counts."""

    def __init__(
        self,
        log: LaunchLog,
        *,
        own_clock: bool = False,
        side_by_side: SideBySide | None = None,
        target: Target = TARGETS["A100"],
    ) -> None:
        """Prepare.

        Args:
            log: tells whether launches are muted.
            own_clock: whether Triton can time configurations by itself, as on a GPU.
            side_by_side: compiles several configurations at once.
            target: the GPU that times are modelled on.
        """
        self._log = log
        self._own_clock = own_clock
        self._side_by_side = side_by_side
        self._target = target
        self._tried: dict[int, _Tried] = {}
        self._timed_run: Callable[..., Any] = Autotuner.run
        self.begin(0)

    def begin(
        self,
        number: int,
        *,
        seconds: float = 15.0,
        timed: bool = False,
        launches: Launches | None = None,
        unnoted: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """A call begins.

        Args:
            number: picks the configuration, counted round.
            seconds: processor time for trying configurations in this call.
            timed: whether the fastest configuration is launched instead.
            launches: counts of every launch so far; those of trials are taken off again.
            unnoted: a context in which torch operations do not count as the call's work.
        """
        self._number = number
        self._seconds = seconds
        self._timed = timed
        self._launches = launches
        self._unnoted = unnoted
        self._tunings: dict[int, dict[str, Any]] = {}

    @property
    def tunings(self) -> list[dict[str, Any]]:
        """What every autotuned kernel of this call launched, see `tasks.observation.Tuning`."""
        return list(self._tunings.values())

    def install(self) -> None:
        """Replace the clock-driven choice in this process."""
        rotation = self

        def run(tuner: Autotuner, *args: Any, **keywords: Any) -> Any:
            return rotation.run(tuner, args, keywords)

        Autotuner.run = run

    def run(self, tuner: Autotuner, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Try every configuration on the first call; launch the chosen one."""
        if self._timed and self._own_clock:
            return self._timed_run(tuner, *args, **keywords)
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configurations = list(tuner.configs)
        if len(configurations) > 1:
            configurations = tuner.prune_configs(keywords)
        if id(tuner) not in self._tried and not self._log.mute:
            self._tried[id(tuner)] = _Tried()
            if len(configurations) > 1:
                with self._off_the_record():
                    self._try_all(tuner, configurations, args, keywords)
        tried = self._tried.get(id(tuner), _Tried())
        fit = tried.fitting(configurations) or configurations[:1]
        index = self._number % len(fit)
        if self._timed and self._launches is not None and len(fit) > 1 and not self._log.mute:
            index = self._fastest(tuner, fit, args, keywords)
        chosen = fit[index]
        self._note(tuner, chosen, index=index, fitting=len(fit))
        tuner.best_config = chosen
        if chosen.pre_hook is not None:
            chosen.pre_hook({**tuner.nargs, **keywords, **chosen.all_kwargs()})
        result = self._launch(tuner, chosen, args, keywords)
        tuner.nargs = None
        return result

    def _note(self, tuner: Autotuner, chosen: Config, *, index: int, fitting: int) -> None:
        tried = self._tried.get(id(tuner), _Tried())
        left_out = list(tried.left_out.values())
        self._tunings[id(tuner)] = {
            "kernel": tuner.base_fn.__name__,
            "chosen": describe(chosen),
            "index": index,
            "fitting": fitting,
            "unfit": len(tried.unfit),
            "left_out": left_out[:NAMED],
            "left_out_count": len(left_out),
        }

    def _try_all(
        self,
        tuner: Autotuner,
        configurations: list[Config],
        args: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> None:
        tried = self._tried[id(tuner)]
        for index, config in enumerate(configurations):
            if index >= CONFIGURATION_LIMIT or (index and self._seconds <= 0):
                tried.left_out[id(config)] = describe(config)
                continue
            started = time.process_time()
            self._compile_ahead(tuner, configurations[:CONFIGURATION_LIMIT], index, args, keywords)
            self._note(tuner, config, index=index, fitting=len(configurations))
            known = self._log.known()
            try:
                self._try(tuner, config, args, keywords)
            except _UNFIT:
                tried.unfit.add(id(config))
                self._log.forget_all_but(known)
            self._seconds -= time.process_time() - started
        self._reset(tuner, configurations[-1], keywords)

    def _compile_ahead(
        self,
        tuner: Autotuner,
        configurations: list[Config],
        index: int,
        args: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> None:
        """Compile a configuration and those after it, as many at once as there are threads.

        A hook may change what is compiled, and no launch comes before it: then there is no ahead.
        """
        if self._side_by_side is None or index % self._side_by_side.threads:
            return
        if _has_hooks(tuner) or any(config.pre_hook for config in configurations):
            return

        def warm_up(config: Config) -> Any:
            settings = {**keywords, **config.all_kwargs(), "warmup": True}
            return tuner.fn.run(*args, **settings)

        batch = configurations[index : index + self._side_by_side.threads]
        self._side_by_side.compile([partial(warm_up, config) for config in batch])

    def _fastest(
        self,
        tuner: Autotuner,
        fit: list[Config],
        args: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> int:
        times_us = []
        for config in fit:
            with self._off_the_record() as trial:
                self._try(tuner, config, args, keywords)
                launches = trial()
                times_us.append(sum(modelled_time_us(each, self._target) for _, each in launches))
        with self._unnoted():
            self._reset(tuner, fit[-1], keywords)
        return times_us.index(min(times_us))

    @contextmanager
    def _off_the_record(self) -> Iterator[Callable[[], Launches]]:
        """What runs inside is no work of the call; gives the launches made inside so far."""
        launches = self._launches if self._launches is not None else []
        before = len(launches)
        with self._unnoted():
            yield lambda: launches[before:]
        del launches[before:]

    def _reset(self, tuner: Autotuner, last: Config, keywords: dict[str, Any]) -> None:
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
            self._launch(tuner, config, args, keywords)
        except Exception as error:
            tuner.post_hook(everything, exception=error)
            raise
        tuner.post_hook(everything, exception=None)

    def _launch(
        self, tuner: Autotuner, config: Config, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        names = {*config.kwargs, *_derived(tuner)}
        choice = self._log.chosen(names) if len(tuner.configs) > 1 else nullcontext()
        with choice:
            return tuner.fn.run(*args, **keywords, **config.all_kwargs())


def _derived(tuner: Autotuner) -> set[str]:
    """Parameters that heuristics inside the tuner compute, from its choice perhaps."""
    layers = (layer for layer in _layers(tuner) if isinstance(layer, Heuristics))
    return {name for layer in layers for name in layer.values}


def _has_hooks(tuner: Autotuner) -> bool:
    return any(getattr(layer, "pre_run_hooks", ()) for layer in _layers(tuner))


def _layers(tuner: Autotuner) -> Iterator[Any]:
    """What the tuner wraps, from the outside to the kernel itself."""
    layer = tuner.fn
    yield layer
    while not isinstance(layer, JITFunction) and hasattr(layer, "fn"):
        layer = layer.fn
        yield layer


def describe(config: Config) -> str:
    """A configuration in words: `BLOCK=64, num_warps=4, num_stages=3`."""
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    text = ", ".join(f"{name}={value}" for name, value in {**config.kwargs, **options}.items())
    return text[:_TEXT_CHARACTERS]
