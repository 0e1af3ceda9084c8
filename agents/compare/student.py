"""Students: what is trained, how it is asked, and how its answers become source text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ...tasks.model import Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Prompt = str | list[dict[str, str]]
Completion = Any
"""Text, or a list of chat messages where the prompt was one."""


class Student(Protocol):
    """A model that can be made anew with the same weights, and the language it speaks."""

    name: str
    tokenizer: PreTrainedTokenizerBase
    training: Mapping[str, Any]
    """Arguments of `GRPOConfig` that suit this model."""
    adapter: Any
    """A `peft` configuration, or `None` to train every weight."""

    def fresh(self) -> PreTrainedModel:
        """A model as it is before training; equal at every call."""

    def prompt(self, task: Task) -> Prompt:
        """What the model is asked."""

    def source(self, task: Task, completion: Completion) -> str | None:
        """The source text that a completion stands for, `None` if there is none in it."""

    def sample(self, model: PreTrainedModel, task: Task, count: int) -> list[Completion]:
        """Completions as in training, drawn from torch's global generator."""
