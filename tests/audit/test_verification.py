"""`lethe audit verify`: every way in which an audit may differ from what is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from lethe_env.audit.command import app
from lethe_env.audit.journal import FILE_NAME, to_line
from lethe_env.audit.row import Outcome, Stage
from lethe_env.audit.synthetic import write_synthetic
from lethe_env.audit.verification import contradictions, read_truths

ROWS = 120
DUPLICATE = "honest/relu (time 2)"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    write_synthetic(path, ROWS)
    return path


@pytest.fixture(scope="module")
def outcomes(corpus):
    """What an audit without fault would say."""
    found = {}
    for identity, truth in read_truths(corpus).items():
        statuses = {name: "fail" for name in truth.caught_by if name[3:4] == "-"}
        found[identity] = Outcome(
            id=identity,
            stage=truth.stage,
            passed=truth.passed,
            gates=statuses,
            channels={name: "" for name in truth.caught_by - {*statuses, "fault"}},
            fault="why" if "fault" in truth.caught_by else "",
        )
    return found


def verify(corpus, outcomes, folder):
    folder.mkdir(exist_ok=True)
    (folder / FILE_NAME).write_bytes(b"".join(to_line(each) for each in outcomes))
    return CliRunner().invoke(app, ["verify", str(corpus), str(folder)])


def test_rows_that_are_as_known_end_with_zero(corpus, outcomes, tmp_path):
    said = verify(corpus, outcomes.values(), tmp_path)
    assert said.exit_code == 0, said.output
    assert f"all {ROWS} rows" in said.stdout
    assert DUPLICATE in outcomes and outcomes[DUPLICATE].stage is Stage.SKIPPED
    assert sum(each.stage is Stage.SKIPPED for each in outcomes.values()) == 7


def spoilt(outcomes, identity, **fields):
    return (outcomes | {identity: replace(outcomes[identity], **fields)}).values()


@pytest.mark.parametrize(
    ("identity", "fields", "words"),
    [
        ("honest/relu", {"passed": False, "reason": "CMP-01"}, "rejected instead of accepted"),
        ("fault/raises", {"passed": True}, "accepted instead of rejected"),
        ("defect/dependency", {"stage": Stage.GATED}, "gated instead of artifact"),
        (DUPLICATE, {"stage": Stage.GATED}, "gated instead of skipped"),
        ("fault/raises", {"fault": "", "gates": {"CMP-01": "fail"}}, "but not by fault"),
    ],
)
def test_a_row_that_is_not_as_known_is_named(corpus, outcomes, tmp_path, identity, fields, words):
    said = verify(corpus, spoilt(outcomes, identity, **fields), tmp_path)
    assert said.exit_code == 1
    (sentence,) = said.stdout.splitlines()
    assert sentence.startswith(f"{identity}: ") and words in sentence


def test_a_trick_that_another_gate_rejects_is_named(corpus, outcomes):
    truths = read_truths(corpus)
    trick = next(i for i, truth in truths.items() if i.startswith("trick") and truth.caught_by)
    other = replace(outcomes[trick], gates={"RES-02": "fail"}, channels={})
    (sentence,) = contradictions({trick: truths[trick]}, [other])
    assert sentence.startswith(f"{trick}: rejected, but not by ")


def test_rows_that_are_missing_or_foreign_are_named(corpus, outcomes, tmp_path):
    foreign = replace(outcomes["honest/relu"], id="elsewhere")
    said = verify(corpus, [*list(outcomes.values())[1:], foreign], tmp_path)
    assert said.exit_code == 1
    assert set(said.stdout.splitlines()) == {
        "elsewhere: not of this corpus",
        f"{next(iter(outcomes))}: not there yet",
    }


def test_a_file_without_truths_is_refused(tmp_path, outcomes):
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "a", "reference": "r", "candidate": "c"}\n')
    said = verify(other, [], tmp_path)
    assert said.exit_code != 0 and "line 1 is not of a synthetic corpus" in str(said.exception)
    said = CliRunner().invoke(app, ["verify", str(tmp_path / "none"), str(tmp_path)])
    assert "`lethe audit synthesize --out` writes it" in str(said.exception)
    said = CliRunner().invoke(app, ["verify", str(other), str(tmp_path / "none")])
    assert "`lethe audit run --out` writes it" in str(said.exception)
    other.write_text("no JSON\n")
    said = verify(other, [], tmp_path)
    assert said.exit_code != 0 and "says its truth" in str(said.exception)
