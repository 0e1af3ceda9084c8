"""The student that needs no GPU: a tiny transformer over the kernel grammar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...tasks.model import Task
from ..grammar import GrammarError, parse, problem_for
from ..tiny import GrammarModel, GrammarPolicy, Vocabulary, new_model

LONGEST_SENTENCE = 16
"""Tokens, the end included; more than any problem has choices."""


class GrammarStudent:
    """Learns which choices to make.

    Args:
        tasks: ids of the tasks it will be asked.
        seed: of its first weights.

    Raises:
        GrammarError: the grammar does not cover a task.
    """

    name = "kernel grammar"
    training: Mapping[str, Any] = {
        "learning_rate": 1e-2,
        "max_completion_length": LONGEST_SENTENCE,
        "generation_kwargs": {"use_cache": False},
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
    }
    adapter = None

    def __init__(self, tasks: Sequence[str], seed: int) -> None:
        self.seed = seed
        self.vocabulary = Vocabulary([problem_for(task) for task in tasks])
        self.tokenizer = self.vocabulary.tokenizer()

    def fresh(self) -> GrammarModel:
        """A model as it is before training."""
        return new_model(self.vocabulary, self.seed)

    def prompt(self, task: Task) -> str:
        """The task's id, one token."""
        return task.id

    def source(self, task: Task, completion: Any) -> str | None:
        """The rendered sentence."""
        problem = problem_for(task.id)
        try:
            return problem.render(parse(problem, completion))
        except GrammarError:
            return None

    def sample(self, model: GrammarModel, task: Task, count: int) -> list[Any]:
        """Sentences."""
        return list(GrammarPolicy(model, self.tokenizer).sentences(task.id, count))
