"""What a run keeps, and when it refuses to."""

from __future__ import annotations

import errno
import os

import pytest

from lethe_env.audit.journal import FILE_NAME, read_outcomes
from lethe_env.audit.judge import Judged
from lethe_env.audit.ledger import SOURCES, Ledger, LedgerError
from lethe_env.audit.sample import PER_STRATUM

from .outcomes import passing

RUN = {"corpus": "a", "seed": 0}


def judged(name):
    return Judged(passing(name, reference_digest="r", candidate_digest=name), f'"{name}"')


def test_what_is_added_is_there_at_once_and_later(tmp_path):
    with Ledger(tmp_path, RUN, print) as ledger:
        ledger.add(judged("one"))
        (found,) = read_outcomes(tmp_path / FILE_NAME, print)
        assert found.id == "one" and "one" in ledger and "two" not in ledger
    with Ledger(tmp_path, RUN, print) as again:
        assert "one" in again and again.counts == {"gated": 1}


def test_a_line_that_was_cut_off_is_said_and_done_again(tmp_path):
    with Ledger(tmp_path, RUN, print) as ledger:
        for name in ("one", "two"):
            ledger.add(judged(name))
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:-20])
    complaints = []
    with Ledger(tmp_path, RUN, complaints.append) as ledger:
        assert "one" in ledger and "two" not in ledger
        ledger.add(judged("two"))
    assert [complaint.line for complaint in complaints] == [2]
    assert [o.id for o in read_outcomes(path, lambda unread: None)] == ["one", "two"]


def test_only_one_run_writes_to_a_folder(tmp_path):
    refused = pytest.raises(LedgerError, match="another audit is writing")
    with Ledger(tmp_path, RUN, print), refused:
        Ledger(tmp_path, RUN, print)
    with Ledger(tmp_path, RUN, print):
        pass


def test_another_run_is_refused_by_name(tmp_path):
    with Ledger(tmp_path, RUN, print):
        pass
    with pytest.raises(LedgerError, match="corpus 'a' instead of 'b'"):
        Ledger(tmp_path, {**RUN, "corpus": "b"}, print)
    with Ledger(tmp_path, RUN, print) as ledger:
        ledger.add(judged("one"))


def test_sources_are_kept_for_the_sample_only(tmp_path):
    def kept():
        return {path.name for path in (tmp_path / SOURCES).iterdir()}

    names = [f"row{n}" for n in range(12)]
    with Ledger(tmp_path, RUN, print) as ledger:
        for name in names[:6]:
            ledger.add(judged(name))
        assert len(kept()) == PER_STRATUM
    with Ledger(tmp_path, RUN, print) as ledger:
        for name in names[6:]:
            ledger.add(judged(name))
    at_once = tmp_path / "at_once"
    with Ledger(at_once, RUN, print) as ledger:
        for name in reversed(names):
            ledger.add(judged(name))
    assert kept() == {path.name for path in (at_once / SOURCES).iterdir()}


def test_a_full_disk_loses_no_row_that_was_kept(tmp_path, monkeypatch):
    with Ledger(tmp_path, RUN, print) as ledger:
        ledger.add(judged("one"))
        with monkeypatch.context() as full:

            def fail(descriptor):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            full.setattr(os, "fsync", fail)
            with pytest.raises(OSError, match="No space left"):
                ledger.add(judged("two"))
    with Ledger(tmp_path, RUN, print) as ledger:
        assert "one" in ledger
