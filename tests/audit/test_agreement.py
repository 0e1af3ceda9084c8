"""Recorded verdicts against ours."""

from __future__ import annotations

import pytest

from lethe_env.audit.agreement import agreement, subject_of
from lethe_env.audit.population import Population
from lethe_env.audit.row import Recorded, Stage

from .outcomes import failing, judged, left, passing

ACCEPTED = {"recorded_verdict": Recorded.ACCEPTED}
REJECTED = {"recorded_verdict": Recorded.REJECTED}


def test_cells_and_kinds_of_difference():
    rows = [
        passing("1", **ACCEPTED),
        failing("2", "EXC-01", "CMP-01", **ACCEPTED),
        failing("3", "CMP-01", **ACCEPTED),
        judged("4", fault="no ModelNew", **ACCEPTED),
        passing("5", **REJECTED, recorded_reason="Output mismatch, max diff 0.02"),
        failing("6", "CMP-01", **REJECTED),
        left("7", Stage.ARTIFACT, "CompilationError", **REJECTED),
        passing("8"),
    ]
    found = agreement(Population(rows))
    assert (found.both_accept, found.only_recorded_accepts) == (1, 3)
    assert (found.only_we_accept, found.both_reject) == (1, 1)
    assert found.judged == 6
    assert found.not_judged == {"artifact": 1}
    assert [(d.recorded, d.kind, d.rows, d.ids) for d in found.differences] == [
        ("accepted", "CMP-01", 2, ("2", "3")),
        ("accepted", "fault", 1, ("4",)),
        ("rejected", "values", 1, ("5",)),
    ]


def test_a_corpus_without_verdicts_has_no_agreement():
    assert agreement(Population([passing("1")])) is None


@pytest.mark.parametrize(
    ("words", "subject"),
    [
        ("CompilationError: at 3:4", "compilation"),
        ("RuntimeError: CUDA error: an illegal memory access", "device fault"),
        ("OutOfResources: out of resource: shared memory", "resources"),
        ("Output shape mismatch: (3,) and (4,)", "shape"),
        ("max_difference 0.3 exceeds tolerance", "values"),
        ("timed out after 60 s", "time-out"),
        ("AttributeError: no such thing", "exception"),
        ("Nothing we know: at all", "Nothing we know"),
        ("", "none"),
    ],
)
def test_what_recorded_words_are_about(words, subject):
    assert subject_of(words) == subject
