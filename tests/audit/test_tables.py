"""The tables: exact numbers on a population made by hand, and what holds on every one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe_env.audit.evidence import FLOOR, evidence_of, floor_channels
from lethe_env.audit.population import Population
from lethe_env.audit.rate import Rate
from lethe_env.audit.row import Recorded, Stage
from lethe_env.audit.tables import (
    class_table,
    contingencies,
    floor_table,
    gate_table,
    headline,
)
from lethe_env.gates.verdict import FATAL_CHANNELS, FLOOR_CHANNELS, FLOOR_GATES

from .outcomes import QUICK, failing, judged, left, passing, populations

YES = {"allclose": True, "allclose_hardened": True}
LOOSE = {"allclose": True, "allclose_hardened": False}
NO = {"allclose": False, "allclose_hardened": False}
ROWS = [
    passing("1", **YES),
    passing("2", **NO),
    passing("3", op_class="scan"),
    failing("4", "CMP-01", **LOOSE),
    failing("5", "CMP-01", "EXC-01", **YES),
    failing("6", "ORD-02", op_class="scan", **YES),
    failing("7", "EXC-02", op_class="scan", **NO),
    judged("8", gates={"CMP-01": "not_applicable"}, channels={"crash": "killed"}, **NO),
    judged("9", op_class="scan", fault="no ModelNew", **NO),
    judged("10", gates={"CMP-01": "pass", "EXC-01": "error"}, channels={"aliasing": "x"}, **YES),
    left("11", Stage.ARTIFACT, "CompilationError"),
    failing("12", "CMP-01", "EXC-01", recorded_verdict=Recorded.REJECTED, **YES),
]


@pytest.fixture(scope="module")
def population():
    return Population(ROWS)


def test_headline(population):
    found = headline(population)
    assert found.violation == Rate(7, 10)
    assert found.floor == Rate(5, 10)
    assert found.floor_with_subnormals == Rate(6, 10)
    assert found.floor_only == 0
    assert found.idle == 0


def test_right_answers_without_a_kernel_of_their_own_are_counted():
    rows = [
        passing("1", kernel="triton"),
        passing("2", kernel="none"),
        passing("3", kernel="decoy"),
        passing("4"),
        failing("5", "CMP-01", kernel="none"),
    ]
    assert headline(Population(rows)).idle == 2


def test_floor(population):
    assert [(row.name, row.rate, row.alone) for row in floor_table(population)] == [
        ("EXC-01", Rate(1, 10), 1),
        ("ORD-02", Rate(1, 10), 1),
        ("aliasing", Rate(1, 10), 1),
        ("device fault", Rate(1, 10), 1),
        ("does not run", Rate(1, 10), 1),
    ]


def test_gates(population):
    table = {row.gate: row for row in gate_table(population)}
    assert list(table) == ["CMP-01", "ORD-02", "EXC-01", "EXC-02"]
    assert table["CMP-01"].rate == Rate(2, 8)
    assert (table["CMP-01"].alone, table["CMP-01"].not_applicable) == (1, 1)
    assert table["EXC-01"].rate == Rate(1, 7)
    assert (table["EXC-01"].alone, table["EXC-01"].broke) == (0, 1)


def test_a_gate_left_unasked_is_no_pass():
    rows = [judged("1", gates={"CMP-01": "fail", "ORD-01": "not_asked"})]
    table = {row.gate: row for row in gate_table(Population(rows))}
    assert table["ORD-01"].rate == Rate(0, 0)
    assert table["ORD-01"].not_asked == 1


def test_classes_and_what_is_left_without_them(population):
    first, second = class_table(population)
    assert (first.op_class, first.violation, first.floor) == ("matmul", Rate(4, 6), Rate(3, 6))
    assert (second.op_class, second.violation, second.floor) == ("scan", Rate(3, 4), Rate(2, 4))
    assert (first.violation_without, first.floor_without) == (Rate(3, 4), Rate(2, 4))
    assert first.gates["CMP-01"] == Rate(2, 5)
    assert second.gates["ORD-02"] == Rate(1, 1)


def test_contingency(population):
    loose, hardened = contingencies(population)
    assert loose.check == "allclose at 1e-2"
    assert (loose.both_accept, loose.only_check_accepts, loose.on_floor) == (1, 4, 3)
    assert (loose.only_contract_accepts, loose.both_reject, loose.not_asked) == (1, 3, 1)
    assert loose.check_accepts == Rate(5, 9)
    assert loose.blind == Rate(4, 9)
    assert loose.blind_on_floor == Rate(3, 4)
    assert (hardened.only_check_accepts, hardened.on_floor, hardened.both_reject) == (3, 3, 4)


def test_a_check_that_was_never_asked_has_no_table():
    assert contingencies(Population([passing("1")])) == []


def test_every_tolerance_free_name_belongs_to_one_channel():
    sources = [name for channel in FLOOR for name in channel.sources]
    assert sorted(sources) == sorted({*FLOOR_GATES, *FLOOR_CHANNELS, "crash", "fault"})
    assert len(FLOOR) == 5


@QUICK
@given(populations())
def test_floor_and_violations_are_what_their_evidence_says(rows):
    for row in Population(rows).denominator:
        assert (row.floor_passed is False) == bool(floor_channels(row))
        assert (row.passed is False) == bool(evidence_of(row))


@QUICK
@given(populations())
def test_the_floor_is_part_of_the_violations(rows):
    found = headline(Population(rows))
    assert found.floor.hits <= found.floor_with_subnormals.hits <= found.violation.hits
    assert found.floor_only == 0


@QUICK
@given(populations(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows, random):
    first, second = Population(rows), Population(random.sample(rows, len(rows)))
    for table in (headline, floor_table, gate_table, class_table, contingencies):
        assert table(first) == table(second)


@QUICK
@given(populations(), st.integers(0, 5))
def test_rows_that_were_not_judged_or_not_accepted_change_no_rate(rows, count):
    stages = [stage for stage in Stage if stage is not Stage.GATED]
    more = [left(f"more {n}", stages[n % len(stages)]) for n in range(count)]
    refused = failing("refused", "CMP-01", "EXC-01", recorded_verdict=Recorded.REJECTED, **YES)
    first, second = Population(rows), Population([*rows, *more, refused])
    for table in (headline, floor_table, gate_table, class_table, contingencies):
        assert table(first) == table(second)


@QUICK
@given(populations())
def test_no_rate_is_above_its_denominator(rows):
    population = Population(rows)
    total = len(population.denominator)
    for gate in gate_table(population):
        assert gate.alone <= gate.rate.hits <= gate.rate.of
        asked = gate.rate.of + gate.not_applicable + gate.not_asked + gate.broke
        assert asked == sum(gate.gate in row.gates for row in population.denominator)
    for row in class_table(population):
        assert row.violation.of + row.violation_without.of == total
        assert (
            row.violation.hits + row.violation_without.hits == headline(population).violation.hits
        )
    for table in contingencies(population):
        assert table.asked + table.not_asked == total


def test_traces_that_prove_nothing_reject_nobody():
    assert "decoy" not in FATAL_CHANNELS
    assert evidence_of(passing("1", channels={"decoy": "right without kernels"})) == ()
