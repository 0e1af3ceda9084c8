"""The command line: exit codes, JSON on standard output, progress on standard error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .doubling import DOUBLE

TASK = DOUBLE
CANDIDATE = TASK.replace("Model(", "ModelNew(")


def lethe(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", "from lethe_env.cli import main; main()"]
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "good.py").write_text(CANDIDATE)
    (tmp_path / "bad.py").write_text(CANDIDATE.replace("x * 2", "torch.nan_to_num(x * 2)"))
    return tmp_path


def test_grading_prints_json_alone_and_exits_by_the_verdict(files):
    good = lethe("grade", files / "task.py", files / "good.py", "--json")
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["passed"] is True
    written = files / "verdict.json"
    bad = lethe("grade", files / "task.py", files / "bad.py", "--json", "--output", written)
    assert bad.returncode == 1
    assert json.loads(bad.stdout) == json.loads(written.read_text())
    again = lethe("reproduce", written, "--json")
    assert again.returncode == 1, again.stderr
    rows = json.loads(again.stdout)
    assert {row["gate"] for row in rows} == {"EXC-01"}
    assert all(row["fails"] and row["was"] == row["now"] for row in rows)


def test_a_failure_is_reproduced_on_the_architecture_of_the_verdict(files):
    only_there = "x * 2 if torch.cuda.get_device_capability() < (9, 0) else torch.nan_to_num(x * 2)"
    (files / "bad.py").write_text(CANDIDATE.replace("x * 2", only_there))
    written = files / "verdict.json"
    arguments = ("grade", files / "task.py", files / "bad.py", "--output", written)
    assert lethe(*arguments, "--architecture", 90).returncode == 1
    assert json.loads(written.read_text())["environment"]["architecture"] == "sm_90"
    assert lethe("reproduce", written).returncode == 1


def test_a_mended_candidate_no_longer_fails_its_probes(files):
    written = files / "verdict.json"
    lethe("grade", files / "task.py", files / "bad.py", "--output", written)
    data = json.loads(written.read_text())
    data["source"] = CANDIDATE
    written.write_text(json.dumps(data))
    mended = lethe("reproduce", written)
    assert mended.returncode == 0
    assert "within the bound" in mended.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("grade", "no/task", "{0}/good.py"), "no task named no/task"),
        (("grade", "{0}/none.py", "{0}/good.py"), "no task file at"),
        (("grade", "{0}/task.py", "{0}/none.py"), "cannot read the candidate"),
        (("reproduce", "{0}/task.py"), "is not a verdict"),
        (("controls", "--only", "nobody"), "no control's name contains 'nobody'"),
        (("grade", "{0}/task.py", "{0}/good.py", "--device", "abacus"), "abacus"),
        (("grade", "{0}/task.py", "{0}/good.py", "--targets", "sm_1"), "sm_1"),
        (("grade", "{0}/task.py", "{0}/good.py", "--architecture", "75"), "no architecture 75"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(files, arguments, sentence):
    result = lethe(*(argument.format(files) for argument in arguments))
    assert result.returncode == 2
    assert sentence in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_reference_that_fails_is_exit_code_2(files):
    (files / "task.py").write_text(TASK.replace("x * 2", "x.nothing()"))
    result = lethe("grade", files / "task.py", files / "good.py")
    assert result.returncode == 2
    assert "the reference fails" in " ".join(result.stderr.split())


def test_tasks_are_listed_shown_and_linted(files):
    listed = lethe("tasks", "list", "--json")
    assert len(json.loads(listed.stdout)) >= 48
    shown = lethe("tasks", "show", files / "task.py")
    assert "x * 2" in shown.stdout
    fine = lethe("tasks", "lint", files / "task.py")
    assert fine.returncode == 0, fine.stdout
    (files / "task.py").write_text(TASK.replace("x * 2", "x * 0"))
    vacuous = lethe("tasks", "lint", files / "task.py")
    assert vacuous.returncode == 1
    assert "zeros would pass" in vacuous.stdout
