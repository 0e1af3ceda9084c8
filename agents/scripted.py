"""Scripted policies: the honest expert and the cheater, who hand in what the project ships."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernels.controls import HONEST, RED_TEAM, Control
from .policy import PolicyError


class ScriptedPolicy:
    """Answers each task with its controls in turn, always in the same order."""

    def __init__(self, controls: tuple[Control, ...], kind: str) -> None:
        self._kind = kind
        self._controls: dict[str, list[Control]] = {}
        for control in controls:
            self._controls.setdefault(control.task, []).append(control)
        self._asked: dict[str, int] = {}

    @property
    def tasks(self) -> tuple[str, ...]:
        """Suite ids of the tasks it has an answer for."""
        return tuple(self._controls)

    def act(self, observation: Mapping[str, Any]) -> str:
        """The next control's source text.

        Raises:
            PolicyError: there is none for this task.
        """
        task = observation["task"]
        if task not in self._controls:
            known = ", ".join(sorted(self._controls))
            raise PolicyError(f"there is no {self._kind} kernel for {task}, only for {known}")
        turn = self._asked.get(task, 0)
        self._asked[task] = turn + 1
        known_here = self._controls[task]
        return known_here[turn % len(known_here)].source()


def expert() -> ScriptedPolicy:
    """Hands in kernels that keep every contract."""
    return ScriptedPolicy(HONEST, "honest")


def cheater() -> ScriptedPolicy:
    """Hands in the red team: kernels with one trick each."""
    return ScriptedPolicy(RED_TEAM, "red-team")
