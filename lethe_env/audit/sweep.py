"""The threshold sweep: how the rates move when every bound is multiplied by one factor.

Only numbers move. A gate that compares them says by which factor its bound would have to be
multiplied for it to pass (`Outcome.loosening`); a mask, a dtype, a shape, a fault, a trace or two
runs that differ count against a row at every factor.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..gates.verdict import FATAL_CHANNELS
from .evidence import gate_order
from .population import Population
from .rate import Rate
from .row import Outcome

EXPONENTS = (*range(-4, 11), 20)
"""Bounds from a sixteenth to a million times their computed size."""
_ANSWERS = ("pass", "fail")


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The rates under bounds of 2^`exponent` times their computed size."""

    exponent: int
    violation: Rate
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
    if not movable:
        return []
    violation = Counter(map(accepted_from, rows))
    gates = {
        gate: Counter(passes_from(row, gate) for row in rows if row.gates.get(gate) in _ANSWERS)
        for gate in movable
    }
    return [
        SweepPoint(
            exponent=exponent,
            violation=_rejected(violation, exponent),
            gates={gate: _rejected(gates[gate], exponent) for gate in movable},
        )
        for exponent in exponents
    ]


def immovable(population: Population) -> Rate:
    """Rows that no factor would make the contract accept."""
    rows = population.denominator
    return Rate(sum(accepted_from(row) == math.inf for row in rows), len(rows))


def passes_from(outcome: Outcome, gate: str) -> float:
    """The smallest exponent k such that a gate passes under bounds of 2^k times their size.

    The recorded status holds at exponent zero, so a ratio that was rounded to one changes nothing.
    A gate that did not apply passes at every exponent; one that failed beyond numbers, at none.
    """
    status, needed = outcome.gates.get(gate), outcome.loosening.get(gate)
    if status == "fail":
        return math.inf if needed is None else max(1, _exponent(needed))
    if status == "pass" and needed is not None:
        return min(0, _exponent(needed))
    return -math.inf


def accepted_from(row: Outcome) -> float:
    """The smallest exponent at which a judged row would be accepted, infinite if at none."""
    if row.fault or any(name in row.channels for name in FATAL_CHANNELS):
        return math.inf
    return max((passes_from(row, gate) for gate in row.gates), default=-math.inf)


def _exponent(needed: float) -> float:
    """The smallest integer k with `needed` ≤ 2^k."""
    if needed <= 0 or not math.isfinite(needed):
        return -math.inf if needed <= 0 else math.inf
    mantissa, exponent = math.frexp(needed)
    return exponent - (mantissa == 0.5)


def _rejected(thresholds: Counter[float], exponent: int) -> Rate:
    rejected = sum(rows for threshold, rows in thresholds.items() if threshold > exponent)
    return Rate(rejected, thresholds.total())
