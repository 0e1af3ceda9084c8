"""The client: a verifier whose work is done by this user's broker on this node."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..cell import HarnessError
from ..cell.protocol import ClosedError, DeadlineError, ProtocolError, receive, send
from ..gates.verdict import Verdict
from ..grading import broken
from .jobs import Job, Progress
from .options import GraderOptions
from .rendezvous import address, addresses, locked, peer
from .wire import SIGN_OF_LIFE, job_to_json, verdict_from_json

log = logging.getLogger(__name__)

IDLE_SECONDS = 1800.0
"""A broker ends after so long without clients: longer than a training step, shorter than lunch."""
LOSSES_IN_A_ROW = 3
"""Brokers that may be lost without a single answer in between."""
SILENCE_SECONDS = 120.0
"""After so long without a word, not even a sign of life, a broker counts as lost."""
_START_SECONDS = 300.0
_STATUS_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Client:
    """A verifier backed by the broker.

    Holds no connection between calls, so it may be used by several threads at once, after a fork,
    and in another process that it was pickled to.
    """

    options: GraderOptions = field(default_factory=GraderOptions)
    workers: int | None = None
    """Worker processes, if this client is the one that starts the broker."""
    idle_seconds: float = IDLE_SECONDS

    def grade_many(self, jobs: Sequence[Job], progress: Progress | None = None) -> list[Verdict]:
        """One verdict per job, in order; see `Verifier.grade_many`.

        If the broker is killed meanwhile, it is started again and asked what it had not answered.
        One that is alive and silent is asked again, and what it never answers is void.
        """
        batch = _Batch(jobs, progress)
        losses = 0
        while not batch.complete:
            answered = len(batch.verdicts)
            try:
                with _meet(self) as channel:
                    batch.run(channel)
            except (ClosedError, DeadlineError, ProtocolError, HarnessError, OSError) as error:
                losses = 1 if len(batch.verdicts) > answered else losses + 1
                reason = str(error) or "it closed the connection"
                log.warning("the broker was lost: %s", reason)
                if losses == LOSSES_IN_A_ROW:
                    last = f"{losses} times in a row, the last time because: {reason}"
                    batch.give_up(f"the broker was lost {last}")
        return [batch.verdicts[index] for index in range(len(jobs))]

    def close(self) -> None:
        """Nothing to end: the broker serves others too, and ends itself when nobody comes."""


class _Batch:
    """Jobs, and the verdicts that have come so far."""

    def __init__(self, jobs: Sequence[Job], progress: Progress | None) -> None:
        self.jobs = jobs
        self.verdicts: dict[int, Verdict] = {}
        self._progress = progress

    @property
    def complete(self) -> bool:
        return len(self.verdicts) == len(self.jobs)

    def run(self, channel: socket.socket) -> None:
        """Ask for every verdict that is missing, and wait for them all.

        Raises:
            ClosedError: the broker is gone.
            DeadlineError: it is there and says nothing.
            ProtocolError: it talks nonsense.
        """
        for index, job in enumerate(self.jobs):
            if index in self.verdicts:
                continue
            try:
                send(channel, {"op": "grade", "id": index, "job": job_to_json(job)})
            except ProtocolError as error:
                self._note(index, _void(job, f"the job cannot be sent: {error}"))
        while not self.complete:
            reply = _answer(channel, SILENCE_SECONDS)
            index = reply.get("id")
            if not isinstance(index, int) or not 0 <= index < len(self.jobs):
                raise ProtocolError("an answer came that nobody asked for")
            self._note(index, self._verdict(self.jobs[index], reply))

    def give_up(self, reason: str) -> None:
        """Answer what is missing with `ERROR` verdicts."""
        for index, job in enumerate(self.jobs):
            if index not in self.verdicts:
                self._note(index, _void(job, reason))

    def _verdict(self, job: Job, reply: dict[str, Any]) -> Verdict:
        if "verdict" not in reply:
            return _void(job, str(reply.get("error")))
        try:
            return verdict_from_json(job, reply["verdict"])
        except (ValueError, KeyError, TypeError) as error:
            raise ProtocolError(f"what came is no verdict: {error}") from error

    def _note(self, index: int, verdict: Verdict) -> None:
        self.verdicts[index] = verdict
        if self._progress is not None:
            self._progress(len(self.verdicts), len(self.jobs))


def connect(
    options: GraderOptions | None = None,
    workers: int | None = None,
    *,
    idle_seconds: float = IDLE_SECONDS,
) -> Client:
    """A client of the broker for these options, which is started if it is not there.

    Args:
        options: how to judge.
        workers: worker processes, by default one for each usable core; ignored if the broker runs.
        idle_seconds: time without clients after which the broker ends; ignored likewise.

    Raises:
        HarnessError: no broker could be started.
    """
    chosen = options if options is not None else GraderOptions()
    client = Client(chosen, workers, idle_seconds)
    _meet(client).close()
    return client


def brokers() -> list[dict[str, Any]]:
    """Status of every live broker of this user: `pid`, `device`, and what it has done."""
    found = []
    for path in addresses():
        reply = _talk(path, {"op": "status"})
        if reply is not None:
            found.append({**reply["status"], "socket": str(path)})
    return found


def stop_brokers() -> int:
    """End every broker of this user; returns how many there were."""
    return sum(_talk(path, {"op": "stop"}) is not None for path in addresses())


def _talk(path: Path, question: dict[str, Any]) -> dict[str, Any] | None:
    """One question to a broker, `None` if there is none; one that ends answers nothing."""
    channel = _dial(path)
    if channel is None:
        return None
    with channel:
        try:
            send(channel, question)
            return _answer(channel, _STATUS_SECONDS)
        except ClosedError:
            return {}
        except DeadlineError as error:
            raise HarnessError(f"the broker at {path} does not answer") from error


def _answer(channel: socket.socket, seconds: float) -> dict[str, Any]:
    """The next message that is more than a sign of life.

    Raises:
        ClosedError: the broker is gone.
        DeadlineError: nothing came for so long; the text names its process.
        ProtocolError: it talks nonsense.
    """
    while True:
        try:
            message = receive(channel, time.monotonic() + seconds)
        except DeadlineError as error:
            process, _ = peer(channel)
            raise DeadlineError(f"process {process} says nothing; end it if it hangs") from error
        if message != SIGN_OF_LIFE:
            return message


def _meet(client: Client) -> socket.socket:
    """A connection to the broker, which is started if it is not there.

    Raises:
        HarnessError: no broker could be started.
    """
    path = address(client.options)
    channel = _dial(path)
    if channel is not None:
        return channel
    with locked(path):
        channel = _dial(path)  # someone else may have started it meanwhile
        if channel is not None:
            return channel
        path.unlink(missing_ok=True)
        _start(client, path)
        channel = _dial(path)
    if channel is None:
        record = path.with_suffix(".log")
        raise HarnessError(f"the broker ended as soon as it had started, see {record}")
    return channel


def _dial(path: Path) -> socket.socket | None:
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):
        channel.close()
        return None
    _, user = peer(channel)
    if user != os.getuid():
        channel.close()
        raise HarnessError(f"{path} belongs to user {user}")
    return channel


def _start(client: Client, path: Path) -> None:
    """Start a broker that outlives this process, and wait until it listens.

    Raises:
        HarnessError: it did not get that far.
    """
    orders = {
        "options": client.options.to_json(),
        "workers": client.workers,
        "idle_seconds": client.idle_seconds,
    }
    with path.with_suffix(".log").open("ab") as record:
        process = subprocess.Popen(
            [sys.executable, "-m", "lethe_env.service.broker", str(path)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"},
            stdin=subprocess.PIPE,
            stdout=record,
            stderr=record,
            start_new_session=True,
        )
    try:
        process.communicate(json.dumps(orders).encode(), timeout=_START_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    if process.returncode:
        raise HarnessError(f"the broker could not be started, see {path.with_suffix('.log')}")


def _void(job: Job, reason: str) -> Verdict:
    return broken(job.task, job.source, reason)
