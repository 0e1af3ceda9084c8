"""Measured time of a call: the slope between one and many calls in one round trip.

A round trip costs what it costs, whatever is called in it; the slope over the number of calls is
what one call takes. The clock is the judge's, outside the process that is timed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from .cell import CallRequest, Cell, Workshop, exclusive
from .gates.roofline import untimed
from .gates.speed import Speed
from .gates.truth import Truth
from .tasks.inputs import draw_inputs
from .tasks.model import Task
from .tasks.observation import Observation
from .tasks.probe import Probe
from .tasks.reference import rebound_source

ROUNDS = 7
"""Round trips with one call, and with many; medians are compared."""
LONG_ENOUGH_US = 20_000.0
"""The many calls should take this much longer than one, far above the jitter of a round trip."""
CALLS_LIMIT = 4096
SPARES = 3
"""Further inputs that the timed calls rotate through."""


class UnmeasurableError(Exception):
    """The calls cannot be timed, in one sentence."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The time of one call."""

    call_us: float
    calls: int
    """How many calls the longer round trips held."""


def measure(round_trip: Callable[[int], float]) -> Measurement:
    """Time of one call.

    The first round trip warms up and counts for nothing.

    Args:
        round_trip: makes this many calls in one round trip and returns its duration, microseconds.

    Raises:
        UnmeasurableError: more calls do not take longer.
    """
    round_trip(1)
    single_us = statistics.median(round_trip(1) for _ in range(ROUNDS))
    calls = 2
    while calls < CALLS_LIMIT and round_trip(calls) - single_us < LONG_ENOUGH_US:
        calls *= 2
    many_us = statistics.median(round_trip(calls) for _ in range(ROUNDS))
    call_us = (many_us - single_us) / (calls - 1)
    if call_us <= 0:
        raise UnmeasurableError(f"{calls} calls take no longer than one")
    return Measurement(call_us, calls)


def measure_calls(cell: Cell, request: CallRequest) -> tuple[Measurement, Observation]:
    """Time of a request's call in a cell, and what the last timed call returned.

    Args:
        cell: with the candidate loaded.
        request: the call; its `spares` are rotated through.

    Raises:
        UnmeasurableError: a call ends in a fault, or more calls do not take longer.
        HarnessError: the harness broke.
    """
    last = Observation()

    def round_trip(calls: int) -> float:
        nonlocal last
        last = cell.call(replace(request, calls=calls))
        if last.fault is not None:
            raise UnmeasurableError(f"a timed call failed: {last.fault.message}")
        return last.time_us

    return measure(round_trip), last


def measured_speed(
    workshop: Workshop,
    task: Task,
    source: str,
    probe: Probe,
    request: CallRequest,
    truth: Truth,
    target: str,
) -> Speed | str:
    """Measured times of a timed call and of the reference, or why there are none.

    Args:
        workshop: opens cells on the device.
        task: the problem.
        source: the candidate.
        probe: the timed call, which was judged right when made once.
        request: the same as a request.
        truth: what it has to return; the last of the timed calls is held against it again.
        target: the device's own name.

    Raises:
        HarnessError: the harness broke.
    """
    spares = tuple(
        draw_inputs(task, replace(probe.question, seed=probe.seed + number))
        for number in range(1, SPARES + 1)
    )
    request = replace(request, spares=spares)
    reference = rebound_source(task.source, probe.sizes, task.origin or task.id)
    try:
        with exclusive(workshop.device), workshop.open(source) as cell:
            candidate, seen = measure_calls(cell, request)
        reason = untimed(probe, truth, seen)
        if reason:
            return reason
        with (
            exclusive(workshop.device),
            workshop.open(f"{reference}\nModelNew = Model\n") as cell,
        ):
            eager, _ = measure_calls(cell, request)
    except UnmeasurableError as error:
        return str(error)
    return Speed(
        kind="measured",
        target=target,
        probe=probe.label,
        candidate_us=candidate.call_us,
        eager_us=eager.call_us,
    )
