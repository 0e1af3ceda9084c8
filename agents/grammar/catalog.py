"""Every problem of the grammar, by task."""

from __future__ import annotations

from types import MappingProxyType

from . import elementwise, norms, softmax, summation
from .model import GrammarError, Problem

PROBLEMS = MappingProxyType(
    {
        problem.task: problem
        for problem in (
            *elementwise.PROBLEMS,
            softmax.PROBLEM,
            *norms.PROBLEMS,
            summation.PROBLEM,
        )
    }
)
"""Suite id to problem."""


def problem_for(task: str) -> Problem:
    """The problem of one task.

    Raises:
        GrammarError: the grammar does not cover the task.
    """
    if task not in PROBLEMS:
        known = ", ".join(PROBLEMS)
        raise GrammarError(f"the grammar has no sentence for {task}; it covers {known}")
    return PROBLEMS[task]
