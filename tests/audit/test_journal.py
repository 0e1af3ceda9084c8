"""The journal: what is written is read back, and what is broken is said and skipped."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import given

from lethe_env.audit.journal import from_line, open_journal, read_outcomes, to_line
from lethe_env.audit.row import Outcome, Recorded, Row, Stage

from .outcomes import QUICK, failing, passing, populations

FULL = Outcome(
    id="a/1 \ud800",
    stage=Stage.GATED,
    reason="EXC-01: NaN\nout of place",
    op_class="softmax",
    reference_digest="0" * 16,
    candidate_digest="1" * 16,
    reference_bytes=10,
    candidate_bytes=20,
    native_shapes=((2, 3), ()),
    gates={"EXC-01": "fail", "CMP-01": "pass"},
    reasons={"EXC-01": "1 of 2 probes fail"},
    evidence={"EXC-01": {"label": "softmax", "got": "nan", "index": [0, 1]}},
    loosening={"EXC-01": math.inf, "CMP-01": 0.25},
    channels={"aliasing": "the output is the input"},
    kernel="triton",
    passed=False,
    floor_passed=False,
    allclose=True,
    allclose_hardened=False,
    recorded_verdict=Recorded.ACCEPTED,
    recorded_speedup=1.5,
    elapsed_s=2.5,
)


def read(path):
    problems = []
    return list(read_outcomes(path, problems.append)), [str(problem) for problem in problems]


def test_an_outcome_is_one_line_of_strict_json_and_comes_back():
    line = to_line(FULL)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    json.loads(line, parse_constant=pytest.fail)
    assert from_line(line) == FULL


@QUICK
@given(populations())
def test_every_outcome_comes_back(outcomes):
    assert [from_line(to_line(outcome)) for outcome in outcomes] == outcomes


def test_a_broken_line_in_the_middle_costs_that_line_only(tmp_path):
    path = tmp_path / "rows.jsonl"
    good = [to_line(passing("1")), to_line(failing("2", "CMP-01"))]
    path.write_bytes(good[0] + b'{"id": \xff\n' + b"\n" + b"[]\n" + good[1])
    outcomes, problems = read(path)
    assert [outcome.id for outcome in outcomes] == ["1", "2"]
    assert problems[0].startswith("line 2: not JSON")
    assert problems[1] == "line 4: not a JSON object"


def test_the_line_that_an_interruption_cut_is_named_as_such(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(to_line(passing("1")) + to_line(passing("2"))[:40])
    outcomes, problems = read(path)
    assert [outcome.id for outcome in outcomes] == ["1"]
    assert problems[0].startswith("line 2: cut off, as an interrupted run leaves it")


def test_what_is_appended_after_a_cut_line_is_whole(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(to_line(passing("1")) + b'{"id": "2", "st')
    for name in ("2", "3"):
        with open_journal(path) as journal:
            journal.write(to_line(passing(name)))
    outcomes, problems = read(path)
    assert [outcome.id for outcome in outcomes] == ["1", "2", "3"]
    assert len(problems) == 1
    assert path.read_bytes().count(b"\n") == 4


def test_no_row_counts_twice(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(to_line(passing("1")) + to_line(failing("1", "CMP-01")))
    outcomes, problems = read(path)
    assert [outcome.passed for outcome in outcomes] == [True]
    assert problems == ["line 2: the id '1' was there before"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schema_version": 2}, "schema 2 cannot be read; this is 1"),
        ({"id": 7}, "an outcome has an id and a stage"),
        ({"stage": "lost"}, "not an outcome ('lost' is not a valid Stage)"),
        ({"recorded_verdict": "maybe"}, "not an outcome ('maybe' is not a valid Recorded)"),
        ({"loosening": {"CMP-01": "much"}}, "not an outcome (could not convert"),
        ({"colour": "red"}, "not an outcome ("),
        ({"native_shapes": 3}, "not an outcome ("),
        ({"gates": ["CMP-01"]}, "not an outcome ("),
        ({"channels": None}, "not an outcome ("),
    ],
)
def test_a_line_that_is_no_outcome_says_what_is_wrong(change, problem):
    line = json.dumps({**json.loads(to_line(passing("1"))), **change}).encode()
    with pytest.raises(ValueError, match=re.escape(problem)):
        from_line(line)


def test_digests_name_texts():
    row = Row(id="1", reference="a\ud800", candidate="b")
    assert row.reference_digest == Row(id="2", reference="a\ud800", candidate="").reference_digest
    assert row.reference_digest != row.candidate_digest
    assert len(row.candidate_digest) == 16
