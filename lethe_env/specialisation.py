"""Which launches are compiled ahead of time: one of each kind, the most demanding ones first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .tasks.observation import Launch, Observation

COMPILE_LIMIT = 6
"""Launches of one candidate that are compiled for each target; a compile takes up to seconds."""


class Selection(NamedTuple):
    """Launches to compile, and those of other kinds."""

    launches: tuple[Launch, ...]
    left_out: tuple[Launch, ...]


def select(observations: Iterable[Observation]) -> Selection:
    """One launch of each kind, at most `COMPILE_LIMIT`, every kernel before any kernel twice.

    Of a kind, one that ran is preferred to one that did not: what it was compiled to is known.
    Two launches are of one kind if they differ in run-time numbers only: what a block needs
    follows from its constants, its dtypes and its options. Within a kernel the kinds with the
    largest constants come first, since they ask for most.
    """
    kinds: dict[str, Launch] = {}
    for seen in observations:
        for launch in seen.launches:
            known = kinds.setdefault(_kind(launch), launch)
            if known.compiled is None and launch.compiled is not None:
                kinds[_kind(launch)] = launch
    ranked: dict[str, list[Launch]] = {}
    for launch in sorted(kinds.values(), key=_demand, reverse=True):
        ranked.setdefault(launch.kernel, []).append(launch)
    order = [
        launch
        for turn in range(max(map(len, ranked.values()), default=0))
        for launches in ranked.values()
        for launch in launches[turn : turn + 1]
    ]
    return Selection(tuple(order[:COMPILE_LIMIT]), tuple(order[COMPILE_LIMIT:]))


def _kind(launch: Launch) -> str:
    parts: list[Any] = [launch.kernel, sorted(launch.options.items()), launch.tuned]
    parts += [
        (name, repr(sorted(argument.items())))
        for name, argument in sorted(launch.arguments.items())
        if "value" not in argument or argument["value"] is None
    ]
    return repr(parts)


def _demand(launch: Launch) -> float:
    """Product of the constants, and of the bytes of the widest pointer."""
    constants = [
        argument["constexpr"]
        for argument in launch.arguments.values()
        if type(argument.get("constexpr")) is int and argument["constexpr"] > 0
    ]
    return math.prod(constants) * max((_bytes(a) for a in launch.arguments.values()), default=1)


def _bytes(argument: Mapping[str, Any]) -> int:
    dtype = str(argument.get("pointer", ""))
    digits = "".join(character for character in dtype if character.isdigit())
    return int(digits) // 8 if digits else 1
