"""The prompt: what a policy is told about a task before its first attempt."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..tasks.model import Task

CLAIMS: Mapping[str, str] = MappingProxyType(
    {
        "CMP-01": "values are right for ordinary, huge, tiny, sparse and repeated inputs, and with "
        "other weights loaded after construction",
        "CMP-02": "gradients of every input and parameter are right",
        "CMP-03": "values are right at other shapes and for inputs that are not contiguous",
        "ORD-01": "a long reduction keeps its accuracy",
        "ORD-02": "equal calls return identical bytes, no input is changed, outputs are new memory",
        "ORD-03": "large means and cancelling terms do no harm",
        "PRC-01": "every dtype is computed as accurately as it allows and is returned as it came",
        "PRC-02": "half-precision inputs are summed in a float32 total",
        "EXC-01": "NaN and signed infinities appear exactly where the reference has them",
        "EXC-02": "subnormal numbers and signed zeros are kept",
        "RES-01": "outputs have the reference's device, shape and dtype",
        "RES-02": "every kernel fits the registers and shared memory of the hardware",
    }
)
"""What each gate asks for, in words that give away no input."""

_RULES = """\
Rewrite the PyTorch module below so that Triton kernels of your own do its work.

Answer with one complete Python file in one fenced block. It defines `ModelNew`, which takes the
constructor and call arguments of `Model`, holds the same parameters in the same order, and returns
the same outputs. The kernels must do the computation: PyTorch may allocate and reshape, no more.
Do not read files, start processes, look at the caller or keep answers from one call to the next."""


def task_prompt(task: Task) -> str:
    """The prompt of a task: the rules, what is checked, the reference's source.

    It names no shape, seed or value that the verifier uses beyond those in the reference.
    """
    return "\n\n".join(
        [
            _RULES,
            "\n".join(["What is checked:", *_checks(task)]),
            f"```python\n{task.source.strip()}\n```",
        ]
    )


def task_messages(task: Task) -> list[dict[str, str]]:
    """The prompt as a chat of one message, a fresh list."""
    return [{"role": "user", "content": task_prompt(task)}]


def turn_prompt(observation: Mapping[str, Any]) -> str:
    """The text for one turn of an episode: the prompt, and what is said of the last attempt."""
    if not observation["feedback"]:
        return str(observation["prompt"])
    return (
        f"{observation['prompt']}\n\nYour last attempt was judged:\n\n{observation['feedback']}"
        "\n\nSubmit a complete file again."
    )


def _checks(task: Task) -> list[str]:
    left_out = {*task.waived, *(() if task.gradients else ("CMP-02",))}
    lines = [f"* {gate}: {claim}" for gate, claim in CLAIMS.items() if gate not in left_out]
    lines.append(f"* dtypes that have to work: {', '.join(task.dtypes)}")
    if task.allow_tf32:
        lines.append("* matrix products of float32 inputs may use TF32")
    return lines
