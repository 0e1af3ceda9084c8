"""Policies: whatever answers an observation with source text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class PolicyError(RuntimeError):
    """A policy has no answer: it does not know the task, or what it relies on is out of reach."""


class Policy(Protocol):
    """Acts in the gym."""

    def act(self, observation: Mapping[str, Any]) -> str:
        """Source text for the task that is observed.

        Args:
            observation: `task`, the task's id; `prompt`; `reference`, the module's source text;
                `feedback` on the last turn, empty before the first; `turn`, the turns taken.

        Raises:
            PolicyError: there is no answer.
        """


def no_source(reason: str) -> str:
    """What a policy hands in for a completion without code: it earns what an empty file earns."""
    return f"# no source text: {' '.join(reason.split())}\n"
