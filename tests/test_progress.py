"""Progress of long work: bars on a terminal, lines now and then elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from lethe_env import progress


def said(*, terminal: bool, keep: bool = False) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with progress.shown(console, "start", keep=keep) as report:
        report("first [1]", 1, 3)
        report("second", 3, None)
    return console.file.getvalue()


def test_long_work_says_a_line_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.0)
    assert said(terminal=False) == "first [1]: 1 of 3\nsecond: 3\n"


def test_short_work_says_nothing_there():
    assert said(terminal=False) == ""


@pytest.mark.parametrize(("keep", "bars"), [(False, ["second"]), (True, ["first", "second"])])
def test_a_terminal_gets_bars(keep, bars):
    last = said(terminal=True, keep=keep)
    assert all(bar in last for bar in bars)
    assert ("1/3" in last) == keep
