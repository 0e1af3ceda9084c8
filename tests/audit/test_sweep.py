"""The threshold sweep."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given

from lethe_env.audit.evidence import is_beyond_tolerance
from lethe_env.audit.population import Population
from lethe_env.audit.rate import Rate
from lethe_env.audit.sweep import immovable, passes_from, sweep
from lethe_env.audit.tables import gate_table, headline

from .outcomes import NUMERIC, QUICK, failing, judged, passing, populations

ROWS = [
    passing("1", loosening={"CMP-01": 0.2, "EXC-01": 0.0}),
    failing("2", "CMP-01", loosening={"CMP-01": 3.0, "EXC-01": 0.5}),
    failing("3", "CMP-01", loosening={"CMP-01": math.inf, "EXC-01": 0.5}),
    failing("4", "EXC-01", loosening={"CMP-01": 0.9, "EXC-01": 8.0}),
    failing("5", "ORD-02", loosening={"CMP-01": 0.01}),
    judged("6", channels={"race": "two writers"}),
    judged("7", fault="no ModelNew"),
]


def rejected(exponents):
    return [point.violation.hits for point in sweep(Population(ROWS), exponents)]


def test_only_numbers_move():
    assert rejected([0, 1, 2, 3, 30]) == [6, 6, 5, 4, 4]
    assert immovable(Population(ROWS)) == Rate(4, 7)


def test_tighter_bounds_reject_more():
    assert rejected([-1, -2, -3]) == [6, 6, 7]


def test_the_rates_of_each_gate():
    (point,) = sweep(Population(ROWS), [2])
    assert point.gates == {"CMP-01": Rate(1, 5), "EXC-01": Rate(1, 5)}
    assert point.factor == 4.0


def test_a_bound_that_is_just_reached_fails_until_it_is_loosened():
    row = failing("1", "CMP-01", loosening={"CMP-01": 1.0})
    assert passes_from(row, "CMP-01") == 1
    assert passes_from(passing("2", loosening={"CMP-01": 1.5}), "CMP-01") == 0


@pytest.mark.parametrize(
    ("needed", "exponent"),
    [(4.0, 2), (4.000001, 3), (3.0, 2), (1e300, 997), (math.inf, math.inf), (math.nan, math.inf)],
)
def test_the_factor_that_a_failed_gate_needs(needed, exponent):
    assert passes_from(failing("1", "CMP-01", loosening={"CMP-01": needed}), "CMP-01") == exponent


@pytest.mark.parametrize(("needed", "exponent"), [(0.25, -2), (0.3, -1), (0.0, -math.inf)])
def test_the_factor_that_a_passed_gate_bears(needed, exponent):
    assert passes_from(passing("1", loosening={"CMP-01": needed}), "CMP-01") == exponent


def test_without_ratios_there_is_nothing_to_sweep():
    assert sweep(Population([failing("1", "CMP-01")])) == []


@QUICK
@given(populations())
def test_looser_bounds_never_reject_more(rows):
    points = sweep(Population(rows))
    for tighter, looser in pairwise(points):
        assert looser.violation.hits <= tighter.violation.hits
        assert all(looser.gates[g].hits <= tighter.gates[g].hits for g in looser.gates)


@QUICK
@given(populations())
def test_at_factor_one_the_sweep_is_the_report(rows):
    population = Population(rows)
    table = {row.gate: row.rate for row in gate_table(population)}
    for point in sweep(population, [0]):
        assert point.violation == headline(population).violation
        assert point.gates == {gate: table[gate] for gate in point.gates}


@QUICK
@given(populations())
def test_evidence_beyond_numbers_never_moves(rows):
    population = Population(rows)

    def stays(row):
        beyond = [gate for gate in row.failed_gates if is_beyond_tolerance(row, gate)]
        return bool(row.fault or beyond or set(row.channels) - {"decoy"})

    staying = sum(map(stays, population.denominator))
    assert immovable(population).hits == staying
    assert immovable(population).hits >= headline(population).floor.hits
    for point in sweep(population, [60]):
        assert point.violation.hits == staying
        assert set(point.gates) <= set(NUMERIC)
