"""The ledger of a run: what is done, kept in a folder so that nothing is lost or counted twice.

`run.json` says of what the run is, `rows.jsonl` holds one outcome a line, `sources/` the full
verdicts of the sample. A row is done once its line is on the disk: every line is flushed and
synced before the next one is taken, which costs milliseconds where a verdict costs seconds. One
process writes; a second one is turned away by a lock that ends with the first.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from .journal import FILE_NAME, Unread, open_journal, read_outcomes, to_line
from .judge import Judged
from .row import Outcome, digest
from .sample import Strata
from .summary import RUN_FILE

SOURCES = "sources"


class LedgerError(Exception):
    """The folder cannot be used for this run."""


class Ledger:
    """Appends outcomes; use as a context manager."""

    def __init__(
        self,
        folder: Path,
        run: Mapping[str, Any],
        complain: Callable[[Unread], None],
        seed: int = 0,
    ) -> None:
        """Open the folder, and read what is done.

        Args:
            folder: made if it is not there.
            run: what the run is about, JSON-ready; another run in the same folder is refused.
            complain: called for each line that cannot be used.
            seed: of the sample that is kept for a person.

        Raises:
            LedgerError: another process writes to it, or it holds another run.
            OSError: it cannot be written.
        """
        self.folder = folder
        (folder / SOURCES).mkdir(parents=True, exist_ok=True)
        self._lines = open_journal(folder / FILE_NAME)
        try:
            _lock(self._lines.fileno(), folder)
            _check_run(folder / RUN_FILE, dict(run))
            self.counts: Counter[str] = Counter()
            self._done: set[str] = set()
            self._strata = Strata(seed)
            for outcome in read_outcomes(folder / FILE_NAME, complain):
                self._note(outcome)
        except BaseException:
            self._lines.close()
            raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lines.close()

    def __contains__(self, identity: object) -> bool:
        return digest(str(identity)) in self._done

    def add(self, judged: Judged) -> None:
        """Keep an outcome; it is on the disk when this returns.

        Raises:
            OSError: the disk is full, or gone.
        """
        outcome = judged.outcome
        dropped = self._note(outcome)
        if judged.verdict and dropped is not outcome:
            (self.folder / SOURCES / outcome.keeps_file).write_text(judged.verdict)
        self._lines.write(to_line(outcome))
        self._lines.flush()
        os.fsync(self._lines.fileno())
        if dropped is not None and dropped is not outcome:
            (self.folder / SOURCES / dropped.keeps_file).unlink(missing_ok=True)

    def _note(self, outcome: Outcome) -> Outcome | None:
        self._done.add(digest(outcome.id))
        self.counts[outcome.stage.value] += 1
        return self._strata.offer(outcome)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise LedgerError(f"another audit is writing to {folder}") from error


def _check_run(path: Path, run: dict[str, Any]) -> None:
    """Note what the run is about, or see that it is what was noted.

    Raises:
        LedgerError: the folder holds another run.
    """
    if not path.exists():
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(run, indent=2) + "\n")
        temporary.replace(path)
        return
    try:
        held = json.loads(path.read_text())
    except ValueError as error:
        raise LedgerError(f"{path} is not JSON: {error}") from error
    if held != run:
        keys = sorted(key for key in {*held, *run} if held.get(key) != run.get(key))
        differences = ", ".join(f"{k} {held.get(k)!r} instead of {run.get(k)!r}" for k in keys)
        raise LedgerError(
            f"{path.parent} holds another audit: {differences}. Choose another folder."
        )
