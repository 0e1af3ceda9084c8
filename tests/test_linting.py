"""Lint of many tasks: whatever one of them does, the others are linted."""

from __future__ import annotations

from functools import partial

import pytest

from lethe_env.linting import lint_many
from lethe_env.tasks.kernelbench_folder import foreign_task

from .kernelbench.conftest import problem

TASKS = {
    "fine": problem("return x * 2", sizes="rows, width = 4, 40"),
    "not Python": "def (",
    "greedy": problem("return x", inputs="[torch.ones(1 << 40)]", sizes="n = 1"),
    "deadly": "import os\nos._exit(3)",
    "vacuous": problem("return torch.relu(x)", sizes="rows, width = 4, 40"),
}


def loader(name, source):
    return name, partial(foreign_task, name, source, level=None, origin=name)


@pytest.fixture(scope="module")
def reports():
    loaders = [loader(name, source) for name, source in TASKS.items()]
    return {report.task: report for report in lint_many(loaders, workers=2)}


def test_a_task_that_takes_too_long_is_ended():
    (report,) = lint_many([loader("endless", "while True:\n    pass")], seconds=0.5)
    assert report.problems == ("not linted: took over 0.5 seconds",)


def test_every_task_has_a_report(reports):
    assert set(reports) == set(TASKS)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("not Python", "not Python"),
        ("greedy", "elements"),
        ("deadly", "its process ended"),
    ],
)
def test_what_cannot_be_linted_says_why(reports, name, words):
    (problem,) = reports[name].problems
    assert words in problem


def test_a_report_says_what_was_found_out(reports):
    fine = reports["fine"]
    assert (fine.problems, fine.kernelbench) == ((), ())
    assert (fine.float64, fine.fits, fine.native_bytes) == (True, True, 2 * 4 * 40 * 4)
    assert fine.family["base"]["rows"] == 4
    assert fine.to_json()["family"]["vary"]


def test_what_only_kernelbench_takes_is_no_problem_of_the_task(reports):
    assert reports["vacuous"].problems == ()
    (taken,) = reports["vacuous"].kernelbench
    assert taken.startswith("KernelBench's rule takes the input itself in float32, bfloat16")
