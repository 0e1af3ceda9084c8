"""Scoring: one verification per completion, shared by everything in a process that asks for it."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from ..gates.verdict import Verdict
from ..grading import broken
from ..service.client import connect
from ..service.jobs import Job, Verifier
from ..service.options import GraderOptions

OPTIONS_VARIABLE = "LETHE_GRADER"
CAPACITY = 1024
"""Verdicts kept in memory, unless one batch needs more."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Entry:
    verdict: Future[Verdict] = field(default_factory=Future)
    readers: set[str] = field(default_factory=set)

    def spent(self, reader: str) -> bool:
        """Whether this reader has already been told that the harness broke."""
        return reader in self.readers and self.verdict.done() and self.verdict.result().errored


class Scorer:
    """Verdicts by content: equal jobs are verified once, also when threads ask at the same time.

    Several reward functions ask for the same completions. All of them have to hear of a broken
    harness together, or the trainer would take the row for a bad one; yet it should be tried again
    later. So a void verdict is handed once to each reader, and made anew when a reader returns.
    """

    def __init__(self, verifier: Verifier, capacity: int = CAPACITY) -> None:
        self.verifier = verifier
        self.capacity = capacity
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._reported: object = None

    def verdicts(self, jobs: Sequence[Job], reader: str) -> list[Verdict]:
        """One verdict per job, in order; never raises because of a job or of the verifier.

        Args:
            jobs: what to judge; equal jobs get one verdict.
            reader: name of the asking reward.
        """
        digests = [job.digest for job in jobs]
        entries: dict[str, _Entry] = {}
        missing: dict[str, Job] = {}
        with self._lock:
            for digest, job in zip(digests, jobs, strict=True):
                entry = self._entries.get(digest)
                if digest not in entries and (entry is None or entry.spent(reader)):
                    entry = self._entries[digest] = _Entry()
                    missing[digest] = job
                if entry is not None:
                    entries.setdefault(digest, entry).readers.add(reader)
                    self._entries.move_to_end(digest)
            while len(self._entries) > max(self.capacity, len(entries)):
                self._entries.popitem(last=False)
        self._verify(missing, entries)
        return [entries[digest].verdict.result() for digest in digests]

    def report_once(self, batch: object) -> bool:
        """Whether this is the first call for this very object.

        A trainer hands one and the same object to every reward function of a step, and only the
        first may log, or the columns would come twice.
        """
        with self._lock:
            first = self._reported is not batch
            self._reported = batch
            return first

    def _verify(self, missing: Mapping[str, Job], entries: Mapping[str, _Entry]) -> None:
        if not missing:
            return
        jobs = list(missing.values())
        verdicts: Sequence[Verdict] = ()
        try:
            verdicts = self.verifier.grade_many(jobs)
        except Exception:
            logger.exception("the verifier broke; %d completions are left out", len(jobs))
        finally:
            if len(verdicts) != len(jobs):
                verdicts = [broken(job.task, job.source, "no verdict came") for job in jobs]
            for digest, verdict in zip(missing, verdicts, strict=True):
                entries[digest].verdict.set_result(verdict)


_scorers: dict[tuple[int, str], Scorer] = {}
_lock = threading.Lock()


def shared_scorer(options: GraderOptions | None = None) -> Scorer:
    """The scorer of this process for these options, connected to the node's broker on first use.

    Args:
        options: how to grade; `None` is what `use_verifier` set, else `default_options()`.

    Raises:
        ValueError: the environment variable holds no options.
        HarnessError: no broker could be started.
    """
    key = (os.getpid(), "" if options is None else options.digest)
    with _lock:
        if key not in _scorers:
            _scorers[key] = Scorer(connect(default_options() if options is None else options))
        return _scorers[key]


def default_options() -> GraderOptions:
    """The defaults, with what the environment variable `LETHE_GRADER` says instead.

    It holds a JSON object of fields of `GraderOptions`, such as `{"device": "vgpu"}`: a reward
    function that is named in a configuration file has no other place for them.

    Raises:
        ValueError: it holds anything else.
    """
    text = os.environ.get(OPTIONS_VARIABLE, "{}")
    known = GraderOptions().to_json()
    try:
        given = json.loads(text)
        if not isinstance(given, dict) or not given.keys() <= known.keys():
            raise ValueError(f"it has to be a JSON object of {', '.join(known)}")
        return GraderOptions.from_json({**known, **given})
    except (ValueError, TypeError) as error:
        raise ValueError(f"{OPTIONS_VARIABLE}={text}: {error}") from error


def use_verifier(verifier: Verifier) -> None:
    """Let everything in this process that names no options of its own ask this verifier."""
    with _lock:
        _scorers[(os.getpid(), "")] = Scorer(verifier)
