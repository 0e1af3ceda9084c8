"""Autotune configurations: each is judged in a call of its own, as far as the budget goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..tasks.model import Task
from ..tasks.observation import Observation, Tuning
from ..tasks.probe import Probe
from .results import Results, instantiate

TELLING = ("own", "normal")
"""Input families in which a wrong value shows anywhere."""


def unjudged(
    task: Task, seed: int, planned: Iterable[Probe], observations: Mapping[Probe, Observation]
) -> list[Probe]:
    """Calls for the configurations that no telling call has launched yet.

    Args:
        task: the problem.
        seed: of the verdict.
        planned: the probes of CMP-01 and CMP-02, which judge the values of every configuration.
        observations: what was seen so far.
    """
    launched: dict[str, set[int]] = {}
    fitting: dict[str, int] = {}
    for probe, seen in observations.items():
        if not probe.mute:
            for tuning in seen.tunings:
                fitting[tuning.kernel] = max(fitting.get(tuning.kernel, 0), tuning.fitting)
    for probe in instantiate(task, planned, seed):
        seen = observations.get(probe)
        if seen is not None and probe.values in TELLING:
            for tuning in seen.tunings:
                launched.setdefault(tuning.kernel, set()).add(tuning.index)
    base = Probe(sizes=dict(task.family.base), values="normal", gradients=task.gradients)
    numbers = [
        number
        for number in range(max(fitting.values(), default=0))
        if any(
            number < count and number not in launched.get(kernel, set())
            for kernel, count in fitting.items()
        )
    ]
    return instantiate(task, (replace(base, configuration=number) for number in numbers), seed)


def judged(results: Results) -> list[Probe]:
    """The calls made for the sake of one configuration that can be charged."""
    return [
        probe
        for probe in results.observations
        if probe.configuration is not None
        and probe in results.truths
        and not (results.truths[probe].error or results.truths[probe].draws_random)
    ]


def note(observations: Iterable[Observation], budget: str) -> str:
    """What was left out and what does not fit, in one sentence; empty if nothing was.

    Args:
        observations: everything that was seen.
        budget: what is graded at most, in words.
    """
    found: dict[str, Tuning] = {}
    for seen in observations:
        for tuning in seen.tunings:
            known = found.get(tuning.kernel)
            if known is None or _missing(tuning) > _missing(known):
                found[tuning.kernel] = tuning
    return "; ".join(_sentence(t, budget) for t in found.values() if _missing(t))


def _missing(tuning: Tuning) -> int:
    return tuning.left_out_count + tuning.unfit


def _sentence(tuning: Tuning, budget: str) -> str:
    parts = []
    if tuning.unfit:
        parts.append(f"{tuning.unfit} configurations do not fit the device")
    if tuning.left_out_count:
        names = "), (".join(tuning.left_out)
        more = tuning.left_out_count - len(tuning.left_out)
        rest = f" and {more} more" if more else ""
        parts.append(
            f"{tuning.left_out_count} configurations are beyond the budget of {budget} and were "
            f"not graded: ({names}){rest}"
        )
    return f"{tuning.kernel}: {'; '.join(parts)}"
