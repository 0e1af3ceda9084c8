"""The pool: worker processes, a verdict cache before them, and no job judged twice at once."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, as_completed
from dataclasses import asdict, dataclass, field

from ..cell.protocol import ProtocolError
from ..gates.verdict import Verdict
from ..grading import broken
from ..vgpu.cores import usable_cores
from .jobs import Job, Progress
from .options import GraderOptions
from .verdict_cache import VerdictCache, cache_key
from .wire import addressed
from .worker_process import WorkerLostError, WorkerProcess

log = logging.getLogger(__name__)

ATTEMPTS = 2
"""A job whose worker is lost is tried once more, by a new worker."""
JOB_SECONDS = 3600.0
"""Beyond every deadline that the grader keeps itself: a worker that needs longer is stuck."""


@dataclass(slots=True)
class Counts:
    """What a pool has done so far."""

    workers: int = 0
    """Worker processes that were started on demand; lost ones are replaced, not counted again."""
    running: int = 0
    waiting: int = 0
    verified: int = 0
    """Verdicts that a worker found out."""
    remembered: int = 0
    """Answers from the verdict cache."""
    shared: int = 0
    """Answers shared with an equal job that was under way."""
    lost: int = 0
    """Workers that died or were stuck."""

    def to_json(self) -> dict[str, int]:
        """JSON-ready mapping."""
        return asdict(self)


@dataclass(slots=True, eq=False)
class _Entry:
    """One distinct job under way, and everyone who waits for it."""

    job: Job
    waiters: list[tuple[Job, Future[Verdict]]] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        return not all(future.cancelled() for _, future in self.waiters)


class Pool:
    """A verifier over worker processes. May be used by several threads at once.

    Workers are started as they are needed and kept warm. Use as a context manager, or call
    `close`; if the process just ends, its workers end with it.
    """

    def __init__(
        self,
        options: GraderOptions | None = None,
        workers: int | None = None,
        *,
        job_seconds: float = JOB_SECONDS,
    ) -> None:
        """Start nothing yet.

        Args:
            options: how to judge.
            workers: at most so many processes; by default one for each usable core.
            job_seconds: a worker that needs longer for one job is killed.

        Raises:
            ValueError: there would be no worker.
        """
        self.options = options if options is not None else GraderOptions()
        self.workers = usable_cores() if workers is None else workers
        if self.workers < 1:
            raise ValueError(f"a pool needs at least one worker, not {self.workers}")
        cache = self.options.cache
        self._cache = VerdictCache(None if cache is None else cache / "verdicts")
        self._job_seconds = job_seconds
        self._environment: dict[str, str] | None = None
        self._changed = threading.Condition()
        self._entries: dict[str, _Entry] = {}
        self._waiting: deque[_Entry] = deque()
        self._threads: list[threading.Thread] = []
        self._workers: list[WorkerProcess] = []
        self._idle = 0
        self._counts = Counts()
        self._closed = False
        self._owner = os.getpid()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def grade_many(self, jobs: Sequence[Job], progress: Progress | None = None) -> list[Verdict]:
        """One verdict per job, in order; see `Verifier.grade_many`."""
        futures = [self.submit(job) for job in jobs]
        try:
            for done, _ in enumerate(as_completed(futures), start=1):
                if progress is not None:
                    progress(done, len(futures))
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def submit(self, job: Job) -> Future[Verdict]:
        """The verdict of one job, some day. Cancelling it spares work that nobody else wants.

        Raises:
            RuntimeError: the pool belongs to another process.
        """
        if os.getpid() != self._owner:
            raise RuntimeError(
                "this pool was made before a fork and its workers belong to the parent process: "
                "make a pool here, or use service.client.connect()"
            )
        future: Future[Verdict] = Future()
        known = self._remembered(job)
        if known is not None:
            future.set_result(known)
            return future
        with self._changed:
            if self._closed:
                future.set_result(_closed(job))
                return future
            entry = self._entries.get(job.digest)
            if entry is None:
                entry = self._entries[job.digest] = _Entry(job)
                self._waiting.append(entry)
                self._find_a_worker()
            else:
                self._counts.shared += 1
            entry.waiters.append((job, future))
        return future

    def counts(self) -> Counts:
        """What was done, and what is under way."""
        with self._changed:
            self._counts.workers = len(self._threads)
            self._counts.waiting = len(self._waiting)
            self._counts.running = len(self._entries) - len(self._waiting)
            return Counts(**asdict(self._counts))

    def close(self) -> None:
        """End the workers. Jobs that are still waiting get `ERROR` verdicts."""
        if os.getpid() != self._owner:
            return
        with self._changed:
            self._closed = True
            left, self._waiting = list(self._waiting), deque()
            self._changed.notify_all()
        for entry in left:
            self._finish(entry, _closed(entry.job))
        for worker in self._workers:
            worker.kill()
        for thread in self._threads:
            thread.join()

    def _find_a_worker(self) -> None:
        """Wake one that is idle, or start one more; warm ones are preferred."""
        if len(self._waiting) > self._idle and len(self._threads) < self.workers:
            worker = WorkerProcess(self.options, len(self._workers), self.workers)
            thread = threading.Thread(target=self._work, args=(worker,), daemon=True)
            self._workers.append(worker)
            self._threads.append(thread)
            thread.start()
        self._changed.notify()

    def _work(self, worker: WorkerProcess) -> None:
        try:
            while (entry := self._next()) is not None:
                self._finish(entry, self._judge(worker, entry.job))
        finally:
            worker.close()

    def _next(self) -> _Entry | None:
        """The next job that somebody still wants; `None` when the pool is closed."""
        with self._changed:
            while not self._closed:
                while self._waiting:
                    entry = self._waiting.popleft()
                    if entry.wanted:
                        return entry
                    del self._entries[entry.job.digest]
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
        return None

    def _finish(self, entry: _Entry, verdict: Verdict) -> None:
        with self._changed:
            del self._entries[entry.job.digest]
        for job, future in entry.waiters:
            if future.set_running_or_notify_cancel():
                future.set_result(addressed(verdict, job))

    def _judge(self, worker: WorkerProcess, job: Job) -> Verdict:
        try:
            return self._attempts(worker, job)
        except ProtocolError as error:
            return broken(job.task, job.source, f"the job cannot be sent: {error}")
        except Exception as error:  # whoever waits must be answered
            log.exception("the pool broke on task %s", job.task.id)
            worker.close()
            return broken(job.task, job.source, f"the pool broke: {type(error).__name__}: {error}")

    def _attempts(self, worker: WorkerProcess, job: Job) -> Verdict:
        reason = ""
        for _ in range(ATTEMPTS):
            try:
                self._environment = worker.start()
                known = self._remembered(job)
                if known is not None:
                    return known
                if self._closed:
                    return _closed(job)
                return self._verify(worker, job)
            except WorkerLostError as error:
                if self._closed:
                    return _closed(job)
                reason = str(error)
                log.warning("a worker was lost on task %s: %s", job.task.id, reason)
                with self._changed:
                    self._counts.lost += 1
        return broken(
            job.task, job.source, f"{ATTEMPTS} workers were lost on this job, the last: {reason}"
        )

    def _verify(self, worker: WorkerProcess, job: Job) -> Verdict:
        verdict = worker.ask(job, self._job_seconds)
        with self._changed:
            self._counts.verified += 1
        self._cache.put(self._key(job), verdict)
        return verdict

    def _remembered(self, job: Job) -> Verdict | None:
        if self._environment is None:  # not known before the first worker is up
            return None
        verdict = self._cache.get(self._key(job), job)
        if verdict is not None:
            with self._changed:
                self._counts.remembered += 1
        return verdict

    def _key(self, job: Job) -> str:
        return cache_key(job, self.options, self._environment or {})


def _closed(job: Job) -> Verdict:
    return broken(job.task, job.source, "the pool was closed before this job was judged")
