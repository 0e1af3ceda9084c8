"""The pool's handle on one worker process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..cell.protocol import ClosedError, DeadlineError, receive, send
from ..gates.verdict import Verdict
from ..vgpu.cores import THREADS_VARIABLE, usable_cores
from .jobs import Job
from .options import GraderOptions
from .wire import job_to_json, verdict_from_json

START_SECONDS = 300.0
"""For importing torch on a busy machine."""

DEVICES_VARIABLE = "LETHE_CUDA_VISIBLE_DEVICES"
"""GPUs for the workers, comma-separated, where the caller itself is to see none or others."""


class WorkerLostError(Exception):
    """The worker is gone, or had to be killed."""


class WorkerProcess:
    """One worker, started when first needed and again after it was lost.

    Belongs to one thread: the kernel kills the worker when the thread that started it ends.
    """

    def __init__(self, options: GraderOptions, number: int, workers: int = 1) -> None:
        """Nothing is started yet.

        Args:
            options: how to judge.
            number: settles which GPU is used, if several are given.
            workers: processes that share the cores with this one, itself among them.
        """
        self._options = options
        self._number = number
        self._workers = workers
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._environment: dict[str, str] = {}

    def start(self) -> dict[str, str]:
        """Have a live worker; returns where it judges.

        Raises:
            WorkerLostError: it did not come up.
        """
        if self._process is not None and self._process.poll() is None:
            return self._environment
        self.close()
        channel, theirs = socket.socketpair()
        with theirs:
            self._channel = channel
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "lethe_env.service.worker"),
                    *(str(os.getpid()), str(theirs.fileno())),
                ],
                pass_fds=[theirs.fileno()],
                env=worker_environment(os.environ, self._number, self._workers),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        reply = self._exchange(self._options.to_json(), START_SECONDS)
        self._environment = dict(reply["environment"])
        return self._environment

    def ask(self, job: Job, seconds: float) -> Verdict:
        """Have a job judged by the live worker.

        Raises:
            WorkerLostError: no verdict came in time; the worker is dead now.
            ProtocolError: the job is too large to be sent.
        """
        return verdict_from_json(job, self._exchange(job_to_json(job), seconds))

    def close(self) -> None:
        """Kill the worker. Its cells see that it is gone and end too."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            with suppress(ProcessLookupError):  # nothing is left of the group
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def kill(self) -> None:
        """Kill the worker from another thread; whoever waits for it finds it lost."""
        process = self._process
        if process is not None:
            process.kill()

    def _exchange(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        if self._channel is None or self._process is None:
            raise WorkerLostError("it was not started")
        process = self._process
        deadline = time.monotonic() + seconds
        try:
            self._channel.settimeout(seconds)  # one that is stopped does not even read
            send(self._channel, message)
            self._channel.settimeout(None)
            return receive(self._channel, deadline)
        except (DeadlineError, TimeoutError):
            self.close()
            raise WorkerLostError(f"it gave no answer within {seconds:g} seconds") from None
        except ClosedError:
            self.close()
            code = process.returncode
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            raise WorkerLostError(f"it ended {how}") from None


def worker_environment(own: Mapping[str, str], number: int, workers: int = 1) -> dict[str, str]:
    """Environment variables of a worker: the caller's, its part of the cores, and one of the GPUs.

    Args:
        own: the caller's variables.
        number: the worker's.
        workers: how many there may be.
    """
    variables = {**own, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
    variables.setdefault(THREADS_VARIABLE, str(max(1, usable_cores() // workers)))
    listed = own.get(DEVICES_VARIABLE) or own.get("CUDA_VISIBLE_DEVICES") or ""
    devices = [device.strip() for device in listed.split(",") if device.strip()]
    if devices:
        variables["CUDA_VISIBLE_DEVICES"] = devices[number % len(devices)]
    return variables
