"""Chat: an observation as the messages that a language model gets, with one worked example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..env.prompt import task_prompt, turn_prompt
from ..kernels.controls import HONEST, Control
from ..reward.completion import extract_source
from ..tasks.catalog import find_task
from .policy import no_source

_EXAMPLES = ("relu", "silu")


def messages(observation: Mapping[str, Any], *, example: bool = True) -> list[dict[str, str]]:
    """The conversation up to the model's next answer.

    Args:
        observation: what `KernelEnv` shows.
        example: begin with a task that is not the one asked for, and an honest answer to it.
    """
    shown = worked_example(str(observation.get("task", ""))) if example else []
    return [*shown, {"role": "user", "content": turn_prompt(observation)}]


def worked_example(task: str) -> list[dict[str, str]]:
    """A question and its answer, for a task other than `task`."""
    control = next(c for c in _known() if c.task != task)
    return [
        {"role": "user", "content": task_prompt(find_task(control.task))},
        {"role": "assistant", "content": f"```python\n{control.source().strip()}\n```"},
    ]


def answer(completion: str) -> str:
    """The source text in a completion, or a comment that says why there is none."""
    found = extract_source(completion)
    return no_source(found.reason) if found.source is None else found.source


def _known() -> list[Control]:
    return [control for control in HONEST if control.name in _EXAMPLES]
