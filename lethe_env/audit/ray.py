"""The bench on a Ray cluster: the same judges, one in each of many actors.

An actor holds one CPU and judges on the virtual GPU, or holds one GPU and judges on that. A row
belongs to one actor at a time. If an actor is lost, with its node or alone, its row goes to the
next free one and a successor is asked for, which starts where the cluster has room. An answer is
taken once, from the actor that holds the row, so no row is lost or counted twice. Nothing else is
tried again: an actor that answers has judged.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

from ..grader import cache_directory
from ..service.options import GraderOptions
from ..service.pool import Pool
from . import outcomes
from .judge import Judge, Judged
from .preparer import Preparer
from .row import Row, Stage

ATTEMPTS = 3
"""Actors that may be lost on one row before it is given up as the harness's failure."""
REPLACE_SECONDS = 1.0
"""Between two successors, lest a broken installation starts processes without end."""


class JudgesRows(Protocol):
    """What an actor needs of a judge."""

    def judge(self, row: Row) -> Judged:
        """The outcome of a row."""


class RayBench:
    """One actor for each CPU, or each GPU where there are any."""

    def __init__(
        self,
        options: GraderOptions | None = None,
        workers: int | None = None,
        *,
        make_judge: Callable[[], JudgesRows] | None = None,
    ) -> None:
        """Connect to the cluster of `RAY_ADDRESS`, else one on this machine, which is started.

        Args:
            options: how to judge; `cache` is the node's own.
            workers: actors; by default as many as the cluster has room for.
            make_judge: called in each actor; by default a judge with those options.
        """
        self._started = not ray.is_initialized()
        if self._started:
            ray.init(log_to_driver=False)
        options = options if options is not None else GraderOptions()
        on_gpus = _gpus() >= 1 and options.device in ("auto", "cuda")
        self._make_judge = make_judge or _judge_maker(options)
        self._actor = ray.remote(num_cpus=1, num_gpus=1 if on_gpus else 0)(_Actor)
        self.capacity = workers or max(1, int(_gpus() if on_gpus else _cpus()))
        self._waiting: deque[Row] = deque()
        self._losses: dict[str, int] = {}
        self._under_way: dict[Any, tuple[Any, Row | None]] = {}
        self._idle: list[Any] = []
        self._given_up: deque[Judged] = deque()
        for _ in range(self.capacity):
            self._hire()

    def put(self, row: Row) -> None:
        """Take one row."""
        self._waiting.append(row)
        self._assign()

    def get(self, seconds: float) -> Judged | None:
        """What became of one of the rows; `None` if none is done in time."""
        deadline = time.monotonic() + seconds
        while not self._given_up:
            rest_s = max(0.0, deadline - time.monotonic())
            ready, _ = ray.wait(list(self._under_way), num_returns=1, timeout=rest_s)
            if not ready:
                return None
            judged = self._answer(ready[0])
            if judged is not None:
                return judged
        return self._given_up.popleft()

    def close(self) -> None:
        """End the actors; rows that are under way are dropped."""
        for actor in (*self._idle, *(actor for actor, _ in self._under_way.values())):
            ray.kill(actor)
        self._idle, self._under_way = [], {}
        if self._started:
            ray.shutdown()

    def _hire(self) -> None:
        actor = self._actor.remote(self._make_judge)
        self._under_way[actor.ready.remote()] = (actor, None)

    def _assign(self) -> None:
        while self._waiting and self._idle:
            actor, row = self._idle.pop(), self._waiting.popleft()
            self._under_way[actor.judge.remote(row)] = (actor, row)

    def _answer(self, reference: Any) -> Judged | None:
        """Take one answer; `None` if it brings no outcome."""
        actor, row = self._under_way.pop(reference)
        try:
            judged = ray.get(reference)
        except (ActorDiedError, ActorUnavailableError) as error:
            self._replace(actor, row, error)
            return None
        except (
            RayError
        ) as error:  # the judge itself raised: the harness's failure, not to be retried
            judged = None if row is None else _lost(row, f"the judge broke: {error}")
        self._idle.append(actor)
        self._assign()
        return judged

    def _replace(self, actor: Any, row: Row | None, error: RayError) -> None:
        ray.kill(actor)  # one that is only out of reach must not come back and answer
        time.sleep(REPLACE_SECONDS)
        self._hire()
        if row is None:
            return
        losses = self._losses[row.id] = self._losses.get(row.id, 0) + 1
        if losses < ATTEMPTS:
            self._waiting.appendleft(row)
        else:
            reason = f"{losses} actors were lost on this row, the last: {_first_line(error)}"
            self._given_up.append(_lost(row, reason))
        self._assign()


class _Actor:
    """Runs in a process of its own on some node."""

    def __init__(self, make_judge: Callable[[], JudgesRows]) -> None:
        self._judge = make_judge()

    def ready(self) -> None:
        """Returns once the actor runs."""

    def judge(self, row: Row) -> Judged:
        return self._judge.judge(row)


def _judge_maker(options: GraderOptions) -> Callable[[], Judge]:
    def make() -> Judge:
        return Judge(Pool(replace(options, cache=cache_directory()), 1), Preparer())

    return make


def _lost(row: Row, reason: str) -> Judged:
    return Judged(outcomes.undecided(row, Stage.ERROR, reason))


def _first_line(error: RayError) -> str:
    return str(error).strip().partition("\n")[0]


def _cpus() -> float:
    return ray.cluster_resources().get("CPU", 0.0)


def _gpus() -> float:
    return ray.cluster_resources().get("GPU", 0.0)
