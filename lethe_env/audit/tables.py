"""The tables of an audit, all computed from its population."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .evidence import FLOOR, floor_channels, gate_order
from .population import Population
from .rate import Rate
from .row import Outcome

EXCLUDED_FROM_FLOOR = "EXC-02"
"""Subnormals flushed to zero: tolerance-free, but a convention that a reader may excuse."""
IDLE = ("none", "decoy")
"""What `Outcome.kernel` says where no kernel does the work."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The numbers of the first paragraph; each share is of the denominator."""

    violation: Rate
    """Rows that the contract rejects."""
    floor: Rate
    """Rows with evidence that no choice of tolerance could explain."""
    floor_with_subnormals: Rate
    """The same if EXC-02 counted too."""
    floor_only: int
    """Rows on the floor that are recorded as passing; zero unless the verdicts are foreign."""
    idle: int
    """Rows that the contract accepts although no kernel of theirs does the work: none is launched,
    or the output is right without what it computes."""


@dataclass(frozen=True, slots=True)
class ChannelRate:
    """One channel of the floor."""

    name: str
    claim: str
    rate: Rate
    alone: int
    """Rows that no other channel puts on the floor."""


@dataclass(frozen=True, slots=True)
class GateRate:
    """One gate: failures over the rows to which it applied."""

    gate: str
    rate: Rate
    alone: int
    """Rows in which no other gate fails."""
    not_applicable: int
    not_asked: int
    """Rows in which an earlier failure had settled the verdict."""
    broke: int


@dataclass(frozen=True, slots=True)
class ClassRate:
    """One op class, and what is left of the rates without it."""

    op_class: str
    violation: Rate
    floor: Rate
    gates: dict[str, Rate]
    violation_without: Rate
    floor_without: Rate


@dataclass(frozen=True, slots=True)
class Contingency:
    """Another check against the contract, on the same rows."""

    check: str
    both_accept: int
    only_check_accepts: int
    on_floor: int
    """How many of `only_check_accepts` are on the tolerance-free floor."""
    only_contract_accepts: int
    both_reject: int
    not_asked: int

    @property
    def asked(self) -> int:
        """Rows with both opinions."""
        accepts = self.both_accept + self.only_check_accepts
        return accepts + self.only_contract_accepts + self.both_reject

    @property
    def check_accepts(self) -> Rate:
        """Share of rows that the other check accepts."""
        return Rate(self.both_accept + self.only_check_accepts, self.asked)

    @property
    def blind(self) -> Rate:
        """Share of all rows that the other check accepts and the contract rejects."""
        return Rate(self.only_check_accepts, self.asked)

    @property
    def blind_on_floor(self) -> Rate:
        """Share of the blind spot that no choice of tolerance could explain."""
        return Rate(self.on_floor, self.only_check_accepts)


def violates(outcome: Outcome) -> bool:
    """Whether the contract rejects a judged row."""
    return outcome.passed is False


def on_floor(outcome: Outcome) -> bool:
    """Whether a judged row has tolerance-free evidence against it."""
    return outcome.floor_passed is False


def share(rows: Sequence[Outcome], predicate: Callable[[Outcome], bool]) -> Rate:
    """How many of the rows satisfy a predicate."""
    return Rate(sum(map(predicate, rows)), len(rows))


def headline(population: Population) -> Headline:
    """The numbers of the first paragraph."""
    rows = population.denominator
    return Headline(
        violation=share(rows, violates),
        floor=share(rows, on_floor),
        floor_with_subnormals=share(
            rows, lambda row: on_floor(row) or EXCLUDED_FROM_FLOOR in row.failed_gates
        ),
        floor_only=sum(on_floor(row) and not violates(row) for row in rows),
        idle=sum(row.passed is True and row.kernel in IDLE for row in rows),
    )


def floor_table(population: Population) -> list[ChannelRate]:
    """The floor's five channels; they overlap, `alone` does not."""
    found = [floor_channels(row) for row in population.denominator]
    total = Counter(name for names in found for name in names)
    alone = Counter(names[0] for names in found if len(names) == 1)
    return [
        ChannelRate(c.name, c.claim, Rate(total[c.name], len(found)), alone[c.name]) for c in FLOOR
    ]


def gate_table(population: Population) -> list[GateRate]:
    """One line per gate, in the battery's order."""
    rows = population.denominator
    counts = Counter((gate, status) for row in rows for gate, status in row.gates.items())
    sole = Counter(row.failed_gates[0] for row in rows if len(row.failed_gates) == 1)
    return [
        GateRate(
            gate=gate,
            rate=_gate_rate(counts, gate),
            alone=sole[gate],
            not_applicable=counts[gate, "not_applicable"],
            not_asked=counts[gate, "not_asked"],
            broke=counts[gate, "error"],
        )
        for gate in gate_order({gate for gate, _ in counts})
    ]


def class_table(population: Population) -> list[ClassRate]:
    """One line per op class, the largest first, each with the rates of all other classes."""
    rows = population.denominator
    return [_class_rate(rows, op_class) for op_class in population.classes]


def contingency(
    population: Population, check: str, accepts: Callable[[Outcome], bool | None]
) -> Contingency:
    """Cross another check's opinion with the contract's.

    Args:
        population: where the rows come from.
        check: the other check's name.
        accepts: its opinion of a row, `None` where it has none.
    """
    rows = population.denominator
    cells = Counter((accepts(row), violates(row)) for row in rows)
    blind = [row for row in rows if accepts(row) is True and violates(row)]
    return Contingency(
        check=check,
        both_accept=cells[True, False],
        only_check_accepts=cells[True, True],
        on_floor=sum(map(on_floor, blind)),
        only_contract_accepts=cells[False, False],
        both_reject=cells[False, True],
        not_asked=cells[None, False] + cells[None, True],
    )


def contingencies(population: Population) -> list[Contingency]:
    """KernelBench's rule at both tolerances, where it was asked."""
    tables = [
        contingency(population, "allclose at 1e-2", lambda row: row.allclose),
        contingency(population, "allclose at 1e-4", lambda row: row.allclose_hardened),
    ]
    return [table for table in tables if table.asked]


def _class_rate(rows: Sequence[Outcome], op_class: str) -> ClassRate:
    inside = [row for row in rows if row.op_class == op_class]
    outside = [row for row in rows if row.op_class != op_class]
    counts = Counter((gate, status) for row in inside for gate, status in row.gates.items())
    gates = gate_order({gate for gate, _ in counts})
    return ClassRate(
        op_class=op_class,
        violation=share(inside, violates),
        floor=share(inside, on_floor),
        gates={gate: _gate_rate(counts, gate) for gate in gates},
        violation_without=share(outside, violates),
        floor_without=share(outside, on_floor),
    )


def _gate_rate(counts: Counter[tuple[str, str]], gate: str) -> Rate:
    failures = counts[gate, "fail"]
    return Rate(failures, failures + counts[gate, "pass"])
