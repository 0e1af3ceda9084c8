"""The sample for a person."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lethe_env.audit.row import Recorded, Stage
from lethe_env.audit.sample import Strata

from .outcomes import QUICK, failing, judged, left, passing, populations


def filled(rows, **options):
    strata = Strata(**options)
    for row in rows:
        strata.offer(row)
    return strata


def test_a_stratum_is_a_class_and_its_first_evidence():
    rows = [
        passing("1"),
        failing("2", "EXC-01", "CMP-01"),
        failing("3", "ORD-02", op_class="scan"),
        judged("4", op_class="scan", fault="no ModelNew"),
        judged("5", channels={"race": "two writers"}),
    ]
    assert {row.outcome.id: row.stratum for row in filled(rows).sample()} == {
        "1": ("matmul", "none"),
        "2": ("matmul", "CMP-01"),
        "3": ("scan", "ORD-02"),
        "4": ("scan", "fault"),
        "5": ("matmul", "race"),
    }


def test_every_stratum_is_shown_before_any_is_shown_twice():
    rows = [passing(f"p{n}") for n in range(50)]
    rows += [failing(f"f{n}", "CMP-01") for n in range(20)]
    rows += [failing("rare", "EXC-01", op_class="scan")]
    chosen = filled(rows).sample(4)
    assert Counter(row.stratum for row in chosen) == {
        ("matmul", "none"): 2,
        ("matmul", "CMP-01"): 1,
        ("scan", "EXC-01"): 1,
    }
    assert {row.stratum_rows for row in chosen} == {50, 20, 1}


def test_rows_that_were_not_judged_or_not_accepted_are_not_shown():
    refused = failing("1", "CMP-01", recorded_verdict=Recorded.REJECTED)
    rows = [refused, left("2", Stage.ARTIFACT)]
    strata = Strata()
    assert [strata.offer(row) for row in rows] == rows
    assert strata.sample() == []


def test_the_seed_chooses():
    rows = [passing(str(n)) for n in range(200)]
    chosen = {seed: [row.outcome.id for row in filled(rows, seed=seed).sample()] for seed in (0, 1)}
    assert chosen[0] != chosen[1]
    assert len(chosen[0]) == 3


@QUICK
@given(populations(), st.randoms(use_true_random=False), st.integers(0, 3))
def test_the_choice_depends_on_the_set_of_rows_alone(rows, random, size):
    shuffled = random.sample(rows, len(rows))
    assert filled(rows).sample(size) == filled(shuffled).sample(size)


@QUICK
@given(populations())
def test_what_loses_its_place_and_what_is_kept_are_all_rows(rows):
    strata = Strata(per_stratum=1)
    lost = [loser.id for row in rows if (loser := strata.offer(row)) is not None]
    kept = [row.outcome.id for row in strata.sample(len(rows))]
    assert sorted(lost + kept) == sorted(row.id for row in rows)
