"""The native Blackwell backward before the gates: a task whose outputs are its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from torch import nn

from .cell import Limits
from .gates.verdict import Verdict
from .grader import Grader, Vouched
from .kernels.gated_delta.blackwell import modules
from .native_controls import StageReport
from .tasks.catalog import find_task
from .tasks.gradient_task import gradient_task
from .tasks.model import Task

DTYPE = "float16"
"""The one that the native backward is for."""
ARCHITECTURE = 100
BASE_LENGTH, LONG_LENGTH = 19, 70
"""Tokens of most questions, less than a chunk as at the base of the members' own tasks, and of long
sums, a chunk and a bit. Truths are derived token by token, so lengths are what they cost."""
CALL_SECONDS, VERDICT_SECONDS = 240.0, 3600.0
"""Of one call, and of all: kernels are compiled in them, anew for every width."""
VALUES = 2
"""Index of the input that has the shape of the output."""


def native_task(member: str) -> Task:
    """The task to compute a member's gradients with float16 operands."""
    name, _ = modules.MODULES[member]
    task = gradient_task(find_task(name), like=VALUES, dtypes=(DTYPE,))
    base, long = (
        {**sizes, "length": length}
        for sizes, length in ((task.family.base, BASE_LENGTH), (task.family.long, LONG_LENGTH))
    )
    return replace(task, family=replace(task.family, base=base, long=long))


def native_source(module: type[nn.Module]) -> str:
    """A candidate for it."""
    return (
        f"from {modules.__name__} import {module.__name__}, gradients_of\n\n"
        f"ModelNew = gradients_of({module.__name__})\n"
    )


def native_grader(stages: Sequence[StageReport]) -> Grader:
    """What judges such candidates on the virtual GPU, with the CuTe DSL in their processes.

    Args:
        stages: what the native kernels take, for RES-02.
    """
    resources = tuple(stage.resources for stage in stages)
    prepare = f"{modules.__name__}:{modules.prepare.__name__}"
    return Grader(
        device="vgpu",
        targets=(f"sm_{ARCHITECTURE}",),
        architecture=ARCHITECTURE,
        vouched=Vouched(prepare, resources),
        call_seconds=CALL_SECONDS,
        limits=Limits(verdict_seconds=VERDICT_SECONDS),
    )


def member_verdicts(
    grader: Grader, only: str, note: Callable[[str], None]
) -> Iterator[tuple[str, Verdict]]:
    """Judge every member's gradients.

    Args:
        grader: from `native_grader`.
        only: what the member's task has to contain.
        note: told what comes next.
    """
    for member, (name, module) in modules.MODULES.items():
        if only in name:
            note(f"{name}: all gates, asked of gradients; truths take minutes the first time")
            yield member, grader.grade(native_task(member), native_source(module))
