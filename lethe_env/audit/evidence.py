"""What counts against a judged row, and which of it no choice of tolerance could explain."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..gates.battery import GATE_NAMES
from ..gates.verdict import FATAL_CHANNELS, FLOOR_CHANNELS
from .row import Outcome

FAULT = "fault"
"""Name, among gates and traces, of a candidate that cannot run at all."""
NOTHING = "none"
"""Name of the absence of any evidence."""


@dataclass(frozen=True, slots=True)
class FloorChannel:
    """One kind of tolerance-free evidence."""

    name: str
    claim: str
    """What is wrong with a kernel that has it."""
    sources: tuple[str, ...]
    """Gates and traces that count as this kind."""


_DEVICE_FAULTS = ("crash", *(name for name in FLOOR_CHANNELS if name != "aliasing"))
FLOOR: tuple[FloorChannel, ...] = (
    FloorChannel("EXC-01", "NaN or infinity out of place", ("EXC-01",)),
    FloorChannel("ORD-02", "differs from run to run, or a buffer is shared", ("ORD-02",)),
    FloorChannel("aliasing", "an output shares memory that it must not share", ("aliasing",)),
    FloorChannel("device fault", "crash or forbidden access while being judged", _DEVICE_FAULTS),
    FloorChannel("does not run", "cannot be loaded or called at all", (FAULT,)),
)
"""The five channels of the tolerance-free floor; they may overlap."""


def evidence_of(outcome: Outcome) -> tuple[str, ...]:
    """All that rejects a judged row: `fault`, failed gates in the battery's order, traces."""
    failed = sorted(outcome.failed_gates, key=_place)
    fatal = (name for name in FATAL_CHANNELS if name in outcome.channels)
    return (*((FAULT,) if outcome.fault else ()), *failed, *fatal)


def first_evidence(outcome: Outcome) -> str:
    """The first of `evidence_of`, or `none`."""
    return next(iter(evidence_of(outcome)), NOTHING)


def floor_channels(outcome: Outcome) -> tuple[str, ...]:
    """Names of the floor's channels that a judged row has."""
    found = {name for name in evidence_of(outcome) if is_beyond_tolerance(outcome, name)}
    return tuple(channel.name for channel in FLOOR if found.intersection(channel.sources))


def is_beyond_tolerance(outcome: Outcome, name: str) -> bool:
    """Whether a piece of `evidence_of` holds under every multiple of the bounds."""
    return not math.isfinite(outcome.loosening.get(name, math.inf))


def gate_order(names: set[str]) -> list[str]:
    """Gate names in the battery's order, unknown ones last."""
    return sorted(names, key=_place)


def _place(gate: str) -> tuple[int, str]:
    known = GATE_NAMES.index(gate) if gate in GATE_NAMES else len(GATE_NAMES)
    return known, gate
