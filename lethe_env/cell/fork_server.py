"""The judge's handle on one warm server process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..vgpu.cores import THREADS_VARIABLE
from ..vgpu.store import cache_root
from ..vgpu.timing import DEFAULT_ARCHITECTURE
from .conversation import Conversation
from .protocol import ClosedError, DeadlineError, HarnessError, ProtocolError, receive, send
from .requests import Limits

_START_SECONDS = 120.0
_KILL_SECONDS = 30.0
_PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES"),
    THREADS_VARIABLE,
)
"""Environment variables a cell gets to see. A trainer's environment holds tokens."""


class ForkServer:
    """One warm server process, started anew if it has died."""

    def __init__(
        self,
        device: str,
        limits: Limits,
        prepare: Sequence[str] = (),
        architecture: int = DEFAULT_ARCHITECTURE,
    ) -> None:
        """Prepare; the process starts when it is first needed.

        Args:
            device: as of `workshop.Workshop`.
            limits: what each cell may use.
            prepare: as of `workshop.Workshop`.
            architecture: as of `workshop.Workshop`.
        """
        self._device = device
        self._architecture = architecture
        self._prepare = tuple(prepare)
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._ended: dict[int, int] = {}
        self._last_cell = 0
        self._orders = threading.RLock()
        """Held from an order to its answer: several threads may translate at once."""

    def converse(self, task: str, memories: Sequence[int] = ()) -> Conversation:
        """Fork a cell and open a channel to it.

        Args:
            task: `candidate`, `compile`, `assemble` or `translate`.
            memories: memory files that the cell gets as well.

        Raises:
            HarnessError: the server cannot be started or does not answer.
        """
        channel, theirs = socket.socketpair()
        with theirs, self._orders:
            if self._process is None or self._process.poll() is not None:
                self._start()
            self._last_cell += 1
            number, server = self._last_cell, self._process
            order = {"order": "open", "cell": number, "task": task}
            self._send(order, [theirs.fileno(), *memories])
            self._await("opened", number)
        return Conversation(channel, lambda: self._end(server, number))

    def close(self) -> None:
        """End the server and with it all its cells."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            try:
                self._process.wait(_KILL_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGKILL)
                self._process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._process = None

    def _end(self, server: object, cell: int) -> int:
        """Kill a cell and wait until it is gone; it went with its server if that is closed.

        Returns:
            Its exit code; negative: the signal that ended it.

        Raises:
            HarnessError: the server that forked it has died, and the cell with it.
        """
        if self._channel is None:
            return -signal.SIGKILL
        if server is not self._process:
            raise HarnessError("the cell server has died")
        with self._orders:
            if cell not in self._ended:
                self._send({"order": "kill", "cell": cell})
                self._await("ended", cell)
            return self._ended.pop(cell)

    def _start(self) -> None:
        self.close()
        self._ended = {}
        self._folder = Path(tempfile.mkdtemp(prefix="lethe-"))
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lethe_env.cell.server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        settings = {
            "device": self._device,
            "folder": str(self._folder),
            "prepare": self._prepare,
            "architecture": self._architecture,
            "cache": str(cache_root()),
            "limits": asdict(self._limits),
        }
        self._send(settings)
        message = self._receive(_START_SECONDS)
        if message.get("event") != "ready":
            raise HarnessError("the cell server did not come up")

    def _environment(self) -> dict[str, str]:
        own = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        own |= {
            "HOME": str(self._folder),
            "PYTHONSAFEPATH": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "TRITON_CACHE_DIR": str(self._folder / "triton"),
        }
        if self._device == "interpreter":
            own["TRITON_INTERPRET"] = "1"
        return own

    def _await(self, event: str, cell: int) -> None:
        deadline = time.monotonic() + _KILL_SECONDS
        while True:
            message = self._receive(deadline - time.monotonic())
            if message["event"] == "ended":
                self._ended[message["cell"]] = message["status"]
            if message["event"] == event and message["cell"] == cell:
                return

    def _send(self, order: dict[str, Any], files: list[int] | None = None) -> None:
        if self._channel is None:
            raise HarnessError("the cell server is closed")
        try:
            send(self._channel, order, files or [])
        except ClosedError as error:
            raise HarnessError("the cell server has died") from error

    def _receive(self, seconds: float) -> dict[str, Any]:
        if self._channel is None:
            raise HarnessError("the cell server is closed")
        try:
            return receive(self._channel, time.monotonic() + seconds)
        except (ClosedError, DeadlineError, ProtocolError) as error:
            raise HarnessError(
                f"the cell server gave no answer ({type(error).__name__}); its own error, if any, "
                "is on standard error"
            ) from error
