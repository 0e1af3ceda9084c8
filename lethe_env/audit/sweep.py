"""The threshold sweep: how the rates move when every bound is multiplied by one factor.

Only numbers move. A gate that compares them says by which factor its bound would have to be
multiplied for it to pass (`Outcome.loosening`); a mask, a dtype, a shape, a fault, a trace or two
runs that differ count against a row at every factor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..gates.verdict import FATAL_CHANNELS, FLOOR_CHANNELS, FLOOR_GATES
from .evidence import gate_order
from .population import Population
from .rate import Rate
from .row import Outcome

EXPONENTS = (*range(-4, 11), 20)
"""Bounds from a sixteenth to a million times their computed size."""
_FLOOR_TRACES = ("crash", *FLOOR_CHANNELS)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The rates under bounds of 2^`exponent` times their computed size."""

    exponent: int
    violation: Rate
    floor: Rate
    gates: dict[str, Rate]
    """For each gate that compares numbers, failures over the rows to which it applied."""

    @property
    def factor(self) -> float:
        """What every bound is multiplied by."""
        return 2.0**self.exponent


def sweep(population: Population, exponents: Iterable[int] = EXPONENTS) -> list[SweepPoint]:
    """One point per exponent; empty where no row says how far its gates are from passing."""
    rows = population.denominator
    movable = gate_order({gate for row in rows for gate in row.loosening})
    return [_point(rows, movable, exponent) for exponent in exponents] if movable else []


def fails_at(outcome: Outcome, gate: str, exponent: int) -> bool:
    """Whether a gate would fail under bounds of 2^`exponent` times their size.

    At exponent zero the recorded status counts, so a ratio rounded to one changes nothing.
    """
    failed = outcome.gates.get(gate) == "fail"
    needed = outcome.loosening.get(gate)
    if needed is None:
        return failed
    if failed:
        return exponent <= 0 or needed > 2.0**exponent
    return outcome.gates.get(gate) == "pass" and exponent < 0 and needed > 2.0**exponent


def _point(rows: tuple[Outcome, ...], movable: list[str], exponent: int) -> SweepPoint:
    def rejected(row: Outcome, gates: Iterable[str], traces: tuple[str, ...]) -> bool:
        if row.fault or any(name in row.channels for name in traces):
            return True
        return any(fails_at(row, gate, exponent) for gate in gates)

    return SweepPoint(
        exponent=exponent,
        violation=Rate(sum(rejected(row, row.gates, FATAL_CHANNELS) for row in rows), len(rows)),
        floor=Rate(sum(rejected(row, FLOOR_GATES, _FLOOR_TRACES) for row in rows), len(rows)),
        gates={
            gate: Rate(
                sum(fails_at(row, gate, exponent) for row in rows),
                sum(row.gates.get(gate) in ("pass", "fail") for row in rows),
            )
            for gate in movable
        },
    )
