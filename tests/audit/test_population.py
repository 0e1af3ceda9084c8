"""The waterfall from rows to denominator."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lethe_env.audit.population import Population
from lethe_env.audit.row import Recorded, Stage

from .outcomes import QUICK, failing, left, passing, populations

REJECTED = {"recorded_verdict": Recorded.REJECTED}
ROWS = [
    passing("1"),
    failing("2", "CMP-01", op_class="scan"),
    failing("3", "CMP-01", op_class="scan", **REJECTED),
    left("4", Stage.SKIPPED, "no candidate: the column is empty"),
    left("5", Stage.SKIPPED, "no candidate: the column is missing"),
    left("6", Stage.NOT_ACCEPTED, **REJECTED, recorded_reason="ValueError: 3 is not 4"),
    left("7", Stage.ARTIFACT, "CompilationError: at 3:4", **REJECTED, recorded_reason="slow"),
    left("8", Stage.ARTIFACT, "CompilationError: at 3:4"),
    left("9", Stage.ARTIFACT, "missing dependency: no module named apex"),
    left("10", Stage.NOT_APPLICABLE, "the reference fails: 1/0"),
    left("11", Stage.ERROR, "the cell was lost"),
]


def test_rows_leave_one_by_one_and_are_counted_once():
    steps = {step.name: step for step in Population(ROWS).waterfall()}
    assert {name: (step.rows, step.removed) for name, step in steps.items()} == {
        "rows": (11, 0),
        "usable rows": (9, 2),
        "accepted by the source": (6, 3),
        "applicable": (5, 1),
        "not artifacts": (3, 2),
        "judged": (2, 1),
    }
    assert steps["usable rows"].reasons == (("no candidate", 2),)
    assert steps["not artifacts"].reasons == (("CompilationError", 1), ("missing dependency", 1))
    assert steps["accepted by the source"].reasons == (("ValueError", 1), ("slow", 1))


def test_the_denominator_is_what_was_accepted_and_judged():
    population = Population(ROWS)
    assert [row.id for row in population.denominator] == ["1", "2"]
    assert population.classes == ("matmul", "scan")
    assert [row.id for row in population.recorded] == ["3", "6", "7"]


@QUICK
@given(populations())
def test_the_last_step_is_the_denominator(rows):
    population = Population(rows)
    steps = population.waterfall()
    assert steps[-1].rows == len(population.denominator)
    assert sum(step.removed for step in steps) + steps[-1].rows == len(rows)


@QUICK
@given(populations(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows, random):
    shuffled = random.sample(rows, len(rows))
    assert Population(rows).waterfall() == Population(shuffled).waterfall()
    assert Population(rows).classes == Population(shuffled).classes
