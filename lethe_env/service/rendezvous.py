"""Where brokers are met: a private folder with one socket and one lock per kind of broker."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..cell import HarnessError
from .fingerprint import code_fingerprint
from .options import GraderOptions

ADDRESS_BYTES = 107
"""Longest path of a Unix socket, `sun_path` without its final zero."""
_LOCK_SECONDS = 120.0
_LOCK_POLL_SECONDS = 0.05
_CREDENTIALS = struct.Struct("3i")


def private_folder() -> Path:
    """The folder for this user's brokers, made if it is not there.

    Below `XDG_RUNTIME_DIR` where that is set and short enough, else in the temporary folder.

    Raises:
        HarnessError: someone else could reach into it, or no path is short enough.
    """
    given = os.environ.get("XDG_RUNTIME_DIR")
    choices = [Path(given) / "lethe"] if given and Path(given).is_dir() else []
    choices.append(Path(tempfile.gettempdir()) / f"lethe-brokers-{os.getuid()}")
    for folder in choices:
        if len(os.fsencode(folder / ("x" * 16 + ".sock"))) <= ADDRESS_BYTES:
            folder.mkdir(mode=0o700, exist_ok=True)
            _insist_on_privacy(folder)
            return folder
    raise HarnessError(
        f"{choices[-1]} is too long for a Unix socket; point TMPDIR or XDG_RUNTIME_DIR elsewhere"
    )


def _insist_on_privacy(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise HarnessError(f"{folder} must be a folder of yours that nobody else can enter")


def address(options: GraderOptions) -> Path:
    """The socket of the broker for these options, this code and this interpreter."""
    parts = [options.digest, code_fingerprint(), sys.executable]
    name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return private_folder() / f"{name}.sock"


def addresses() -> list[Path]:
    """Sockets of all brokers of this user, live or not."""
    return sorted(private_folder().glob("*.sock"))


@contextmanager
def locked(socket_path: Path) -> Iterator[None]:
    """The right to start or to remove one broker; ends with the process that holds it.

    Raises:
        HarnessError: someone holds it for too long.
    """
    deadline = time.monotonic() + _LOCK_SECONDS
    with socket_path.with_suffix(".lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise HarnessError(f"{file.name} has been held too long") from None
                time.sleep(_LOCK_POLL_SECONDS)
        yield


def peer(channel: socket.socket) -> tuple[int, int]:
    """Process and user at the other end of a Unix socket, by the kernel's word."""
    raw = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(raw)
    return process, user
