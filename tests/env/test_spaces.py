"""The space of source texts."""

from __future__ import annotations

import pickle

import pytest
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import batch_space, create_shared_memory
from hypothesis import given
from hypothesis import strategies as st

from lethe_env.cell.policy import SOURCE_CHARACTERS
from lethe_env.env.spaces import SourceText


@given(st.text())
def test_every_text_that_utf8_can_write_is_a_member(text):
    assert text in SourceText()


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (None, "NoneType, not text"),
        (b"x", "bytes, not text"),
        (7, "int, not text"),
        ("αβγδ", "more than 3 characters"),
        ("a\ud800", "character 1 is half of a surrogate"),
    ],
)
def test_what_is_no_member_is_told_why(action, words):
    space = SourceText(3)
    assert action not in space
    assert words in space.objection(action)


def test_the_longest_text_is_what_the_verifier_reads():
    assert SourceText().max_length == SOURCE_CHARACTERS


def test_samples_are_seeded_members():
    one, two = SourceText(seed=3), SourceText(seed=3)
    samples = [one.sample() for _ in range(20)]
    assert samples == [two.sample() for _ in range(20)]
    assert all(text in one for text in samples)
    assert len(set(samples)) > 2
    assert SourceText(0).sample() == ""


def test_it_is_small_and_equal_by_value():
    space = SourceText()
    assert len(repr(space)) < 40
    assert len(pickle.dumps(space)) < 1000
    assert pickle.loads(pickle.dumps(space)) == space == SourceText() != SourceText(5)
    assert batch_space(space, 2).contains(("a", "β\n"))


def test_shared_memory_is_refused_instead_of_filled_with_garbage():
    with pytest.raises(CustomSpaceError):
        create_shared_memory(SourceText(), n=2)
