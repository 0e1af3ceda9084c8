"""Workers that are no processes: they do at once, or when told to, what a test wants."""

from __future__ import annotations

import threading
from collections import Counter

from lethe_env.gates.verdict import Verdict, failed, passed
from lethe_env.grading import broken
from lethe_env.service.worker_process import WorkerLostError


def verdict_of(job) -> Verdict:
    """Passes if the source says so."""
    finding = (
        passed("CMP-01", "right", probes=1.0)
        if "honest" in job.source
        else failed("CMP-01", "wrong")
    )
    return Verdict(task=job.task.to_json(), source=job.source, findings=(finding,))


class FakeWorker:
    """Counts what it was asked; `gate` holds answers back; sources can ask for trouble."""

    asked: Counter[str]
    gate: threading.Event
    started: int

    def __init__(self, options, number, workers=1):
        self.alive = False

    def start(self):
        if not self.alive:
            type(self).started += 1
        self.alive = True
        return {"device": "fake"}

    def ask(self, job, seconds):
        self.asked[job.source] += 1
        assert "at once" in job.source or self.gate.wait(30)
        if "dies always" in job.source or ("dies once" in job.source and self.first(job)):
            self.alive = False
            raise WorkerLostError("it ended by signal 9")
        if "bug" in job.source:
            raise ZeroDivisionError("a bug of ours")
        if "void" in job.source:
            return broken(job.task, job.source, "the harness broke")
        return verdict_of(job)

    def first(self, job):
        return self.asked[job.source] == 1

    def kill(self):
        self.gate.set()

    def close(self):
        self.alive = False


def fake_worker() -> type[FakeWorker]:
    """A class of its own, so that nothing is shared between tests."""
    gate = threading.Event()
    gate.set()
    return type("Fake", (FakeWorker,), {"asked": Counter(), "gate": gate, "started": 0})
