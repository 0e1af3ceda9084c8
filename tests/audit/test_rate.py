"""Shares and Wilson's interval."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe_env.audit.rate import Rate

from .outcomes import QUICK


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), table I, method 3 (score, no correction)
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_known_intervals(hits, of, low, high):
    rate = Rate(hits, of)
    assert round(rate.low, 4) == low
    assert round(rate.high, 4) == high


def test_the_ends_are_exact():
    assert Rate(0, 7).low == 0.0
    assert Rate(7, 7).high == 1.0


def test_nothing_has_no_share_and_any_share_is_possible():
    assert Rate(0, 0).share is None
    assert (Rate(0, 0).low, Rate(0, 0).high) == (0.0, 1.0)


@QUICK
@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_the_interval_holds_the_share_and_mirrors(hits, of):
    hits = min(hits, of)
    rate, mirrored = Rate(hits, of), Rate(of - hits, of)
    assert 0 <= rate.low <= rate.share <= rate.high <= 1
    assert rate.low == pytest.approx(1 - mirrored.high, abs=1e-12)


@QUICK
@given(st.integers(0, 50), st.integers(1, 50))
def test_each_end_is_where_the_score_test_just_rejects(hits, of):
    hits = min(hits, of)
    rate = Rate(hits, of)
    for end in (rate.low, rate.high):
        if 0 < end < 1:
            score = abs(rate.share - end) / (end * (1 - end) / of) ** 0.5
            assert score == pytest.approx(1.959963984540054, rel=1e-9)
