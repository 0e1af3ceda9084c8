"""The handle on the process in which foreign references are looked at."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from contextlib import suppress

from ..cell.protocol import ClosedError, DeadlineError, ProtocolError, receive, send
from ..service.worker_process import worker_environment
from .preparation import Prepared
from .row import digest

PREPARE_SECONDS = 600.0
"""Fitting a shape family takes seconds; a reference that needs so long hangs."""
START_SECONDS = 300.0
"""For importing torch on a busy machine."""
REMEMBERED = 1024
"""References that are not looked at again while others come."""


class Preparer:
    """Prepares references, one at a time, in one process. May be used by several threads.

    A reference that ends the process, or hangs, is the reference's problem: the next one gets a
    new process.
    """

    def __init__(self, seconds: float = PREPARE_SECONDS) -> None:
        """Start nothing yet.

        Args:
            seconds: deadline for one reference.
        """
        self._seconds = seconds
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Prepared] = OrderedDict()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def prepare(self, reference: str) -> Prepared:
        """What a reference has to offer; never raises because of it."""
        key = digest(reference)
        with self._lock:
            found = self._known.get(key)
            if found is None:
                found = self._ask(reference)
            self._known[key] = found
            self._known.move_to_end(key)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return found

    def close(self) -> None:
        """End the process."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _ask(self, reference: str) -> Prepared:
        started = self._process is None
        channel = self._started()
        seconds = self._seconds + (START_SECONDS if started else 0.0)
        try:
            send(channel, {"reference": reference})
            return Prepared.from_json(receive(channel, time.monotonic() + seconds))
        except ClosedError:
            problem = "the reference ended the process that ran it"
        except DeadlineError:
            problem = f"the reference did not finish within {self._seconds:g} seconds"
        except ProtocolError as error:
            problem = f"the reference cannot be read: {error}"
        self.close()
        return Prepared(problem=problem)

    def _started(self) -> socket.socket:
        if self._channel is not None:
            return self._channel
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "lethe_env.audit.preparation"),
                    *(str(os.getpid()), str(theirs.fileno())),
                ],
                pass_fds=[theirs.fileno()],
                env=worker_environment(os.environ, 0),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self._channel
