"""`lethe audit run` and `lethe audit synthesize`: what is said, and the exit codes."""

from __future__ import annotations

import errno
import json
import os

import pytest
from typer.testing import CliRunner

from lethe_env.audit import run_command
from lethe_env.audit.bench import LocalBench
from lethe_env.audit.command import app
from lethe_env.audit.journal import FILE_NAME, read_outcomes
from lethe_env.audit.row import Stage
from lethe_env.command_line import UsageError
from tests.service.conftest import HONEST, NAN_SWALLOWING, WRONG, candidate

from ..doubling import DOUBLE
from .fakes import KnownJudge


def audit(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def outcomes(folder):
    return {o.id: o for o in read_outcomes(folder / FILE_NAME, lambda unread: None)}


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    assert audit("synthesize", "--out", path, "--rows", 30).exit_code == 0
    return path


@pytest.fixture
def judge(monkeypatch):
    """Judges everything at once, without a process."""
    known = KnownJudge()
    monkeypatch.setattr(
        run_command, "_bench", lambda on, options, workers: LocalBench(workers=2, judge=known)
    )
    return known


def test_a_finished_run_exits_with_zero_and_does_nothing_the_second_time(tmp_path, corpus, judge):
    first = audit("run", corpus, "--out", tmp_path / "out")
    assert first.exit_code == 0, first.output
    assert "30 rows in" in first.stderr and "skipped" in first.stderr
    asked = judge.asked.total()
    assert audit("run", corpus, "--out", tmp_path / "out").exit_code == 0
    assert judge.asked.total() == asked and len(outcomes(tmp_path / "out")) == 30
    about = json.loads((tmp_path / "out" / "run.json").read_text())
    assert about["corpus"] == str(corpus)


def test_a_row_that_the_harness_broke_on_exits_with_three(tmp_path, corpus, judge):
    from types import SimpleNamespace

    judge.known["honest/relu"] = SimpleNamespace(stage=Stage.ERROR, passed=None)
    assert audit("run", corpus, "--out", tmp_path / "out").exit_code == 3


def test_a_stopped_run_exits_with_130_and_the_same_command_goes_on(
    tmp_path, corpus, judge, monkeypatch
):
    stop = run_command.Stop()
    stop.ask()
    with monkeypatch.context() as stopped:
        stopped.setattr(run_command, "Stop", lambda: stop)
        assert audit("run", corpus, "--out", tmp_path / "out").exit_code == 130
    assert audit("run", corpus, "--out", tmp_path / "out").exit_code == 0
    assert len(outcomes(tmp_path / "out")) == 30


def test_a_full_disk_is_said_and_exits_with_three(tmp_path, corpus, judge, monkeypatch):
    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)
        found = audit("run", corpus, "--out", tmp_path / "out")
    assert found.exit_code == 3
    assert "cannot be written: No space left on device" in found.stderr
    assert audit("run", corpus, "--out", tmp_path / "out").exit_code == 0
    assert len(outcomes(tmp_path / "out")) == 30


def test_a_larger_sample_goes_on_from_a_smaller_one(tmp_path, corpus, judge):
    out = tmp_path / "out"
    assert audit("run", corpus, "--out", out, "--sample", 5, "--seed", 3).exit_code == 0
    small = set(outcomes(out))
    assert audit("run", corpus, "--out", out, "--sample", 12, "--seed", 3).exit_code == 0
    assert len(small) == 5 and len(outcomes(out)) == 12 and small < set(outcomes(out))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("absent.jsonl",), "no table at"),
        (("absent",), "neither a file nor the owner/name of a dataset"),
        (("{corpus}", "--preset", "nonsense"), "no preset 'nonsense'"),
        (("{corpus}", "--column", "candidate"), "ROLE=NAME"),
        (("{corpus}", "--column", "candidate=x"), "has no column 'x'"),
        (("{corpus}", "--on", "moon"), "pool or ray"),
        (("{corpus}", "--device", "tpu"), "no device named tpu"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path, corpus, arguments, words):
    given = [argument.format(corpus=corpus) for argument in arguments]
    found = audit("run", *given, "--out", tmp_path / "out")
    assert isinstance(found.exception, UsageError) and words in str(found.exception)


def test_what_is_skipped_is_said_with_its_reason(tmp_path, corpus, judge):
    with corpus.open("a") as lines:
        lines.write("{broken\n")
    found = audit("run", corpus, "--out", tmp_path / "out")
    assert found.exit_code == 0
    assert "row31 is skipped: not JSON" in found.stderr


def test_another_run_in_the_same_folder_is_refused(tmp_path, corpus, judge):
    assert audit("run", corpus, "--out", tmp_path / "out").exit_code == 0
    found = audit("run", corpus, "--out", tmp_path / "out", "--accepted-only")
    assert isinstance(found.exception, UsageError)
    assert "accepted_only False instead of True" in str(found.exception)


def test_real_verdicts_reach_the_rows(tmp_path):
    sources = {"honest": HONEST, "wrong": WRONG, "swallows": NAN_SWALLOWING}
    sources["raises"] = candidate("x.nonsense()")
    sources["needs"] = "import a_package_that_nobody_has\n" + HONEST
    rows = [{"id": k, "reference": DOUBLE, "candidate": v} for k, v in sources.items()]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = audit("run", path, "--out", tmp_path / "out", "--device", "interpreter", "--workers", 1)
    assert found.exit_code == 0, found.output
    seen = outcomes(tmp_path / "out")
    assert seen["honest"].passed and seen["honest"].op_class == "elementwise"
    assert seen["honest"].native_shapes == ((64,),)
    assert seen["wrong"].gates["CMP-01"] == "fail" and not seen["wrong"].allclose_hardened
    assert seen["wrong"].allclose and 1 < seen["wrong"].loosening["CMP-01"] < float("inf")
    assert seen["swallows"].gates["EXC-01"] == "fail" and seen["swallows"].allclose_hardened
    assert not seen["swallows"].floor_passed and seen["honest"].floor_passed
    assert "nonsense" in seen["raises"].fault and seen["raises"].stage is Stage.GATED
    assert seen["needs"].stage is Stage.ARTIFACT
    assert audit("report", tmp_path / "out").exit_code == 0
