"""`lethe audit report` and `lethe audit published`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from lethe_env.audit.command import app
from lethe_env.audit.journal import FILE_NAME, to_line
from lethe_env.cell import HarnessError
from lethe_env.command_line import UsageError

from .outcomes import failing, passing
from .test_published import ROWS


def audit(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_report_is_rendered_again_from_the_rows(tmp_path):
    (tmp_path / FILE_NAME).write_bytes(to_line(passing("1")) + b"{\n")
    first = audit("report", tmp_path)
    assert first.exit_code == 0
    assert "1 rows, of which 1 count." in first.stdout
    assert "any violation: 0 (0.0 %" in first.stdout
    assert "rows.jsonl, line 2: not JSON" in first.stderr
    assert "1 lines of" in first.stderr
    with (tmp_path / FILE_NAME).open("ab") as journal:
        journal.write(to_line(failing("2", "EXC-01")))
    again = audit("report", tmp_path, "--json", "--sample-size", 1)
    tables = json.loads(again.stdout)
    assert tables["headline"]["floor"]["hits"] == 1
    assert len(tables["sample"]) == 1
    assert json.loads((tmp_path / "tables.json").read_text()) == tables


def test_a_folder_without_rows_is_a_mistake_of_the_caller(tmp_path):
    assert isinstance(audit("report", tmp_path).exception, UsageError)


def test_a_folder_that_cannot_be_written_is_not(tmp_path):
    (tmp_path / FILE_NAME).write_bytes(to_line(passing("1")))
    (tmp_path / "tables.json").mkdir()
    assert isinstance(audit("report", tmp_path).exception, HarnessError)


def test_published_rows_become_a_report(tmp_path):
    file = tmp_path / "rows of others.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    result = audit("published", file, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.exception
    assert "any violation: 5 (62.5 %" in result.stdout
    assert "rows of others.jsonl" in (tmp_path / "out" / "report.md").read_text()
    again = audit("published", file, "--out", tmp_path / "out")
    assert isinstance(again.exception, UsageError)


@pytest.mark.parametrize("name", ["absent.jsonl", "text.jsonl.gz"])
def test_a_file_that_cannot_be_read_is_a_mistake_of_the_caller(tmp_path, name):
    (tmp_path / "text.jsonl.gz").write_text("not gzipped")
    result = audit("published", tmp_path / name, "--out", tmp_path / "out")
    assert isinstance(result.exception, UsageError)
