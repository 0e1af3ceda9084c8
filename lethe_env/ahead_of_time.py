"""Compiling ahead of time what a candidate launched, as far as RES-02 needs to know it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .gates import hardware
from .tasks.observation import KernelResources, Launch

Compile = Callable[[Sequence[Launch]], tuple[KernelResources, ...]]
"""From launches to what each needs on each target, kernels that nobody else can make left out."""


def compile_ahead(
    compiled: Compile, launches: Sequence[Launch], left_out: Sequence[Launch], targets: int
) -> tuple[tuple[KernelResources, ...], str]:
    """Compile the launches, and more configurations of a tuned kernel while none is known to fit.

    A tuner skips a configuration that its device has no room for, so one that does not fit says
    nothing until all others have been looked at.

    Args:
        compiled: compiles launches for every target.
        launches: what is compiled in any case.
        left_out: launches of further kinds, the most demanding ones first.
        targets: how many targets there are.

    Returns:
        The resources, and what was not compiled in words.
    """
    resources, waiting = compiled(launches), list(left_out)
    asked = len(launches)
    while misfits := hardware.undecided(resources):
        further = next((each for each in reversed(waiting) if each.choice in misfits), None)
        if further is None:
            break
        waiting.remove(further)
        resources, asked = resources + compiled([further]), asked + 1
    notes = [f"{len(waiting)} smaller specialisations were not compiled"] if waiting else []
    if len(resources) < asked * targets:
        notes.append("kernels that only the function which makes them knows were not compiled")
    return resources, ", ".join(notes)
