"""A folder of small files with a limit on their size: least recently used ones go first."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

DEFAULT_LIMIT_MEGABYTES = 1024
LIMIT_VARIABLE = "LETHE_CACHE_MEGABYTES"
"""Environment variable that sets the limit of every store."""

_KEPT_FRACTION = 0.75
_WRITES_BETWEEN_SWEEPS = 64
_DIGEST_BYTES = 32
_UNFINISHED = ".unfinished-"
_ABANDONED_SECONDS = 3600.0
"""A file that is still unfinished after that long belongs to a writer that was killed."""


def cache_root() -> Path:
    """Below which everything is kept: `LETHE_CACHE_DIR`, else `~/.cache/lethe_env`."""
    chosen = os.environ.get("LETHE_CACHE_DIR")
    return Path(chosen) if chosen else Path.home() / ".cache" / "lethe_env"


class Store:
    """Bytes by key, on disk.

    Several processes may use one folder: a file appears whole or not at all, and one that was
    damaged since counts as missing.
    """

    def __init__(self, folder: Path, limit_bytes: int | None = None) -> None:
        """Open; the folder is made when something is put into it.

        Args:
            folder: where the files lie, for this store alone.
            limit_bytes: their size in all; by default what `LETHE_CACHE_MEGABYTES` says, else
                1,024 megabytes.
        """
        self._folder = folder
        self._limit_bytes = _limit_bytes() if limit_bytes is None else limit_bytes
        self._writes = 0

    def get(self, key: str) -> bytes | None:
        """What was put under a key, if it is there still."""
        path = self._folder / key
        try:
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        digest, value = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        return value if hashlib.sha256(value).digest() == digest else None

    def put(self, key: str, value: bytes) -> None:
        """Keep bytes under a key, a valid file name; in time the oldest ones make room."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=self._folder, prefix=_UNFINISHED)
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(value).digest() + value)
        Path(temporary).replace(self._folder / key)
        if self._writes % _WRITES_BETWEEN_SWEEPS == 0:
            self.sweep()
        self._writes += 1

    def sweep(self) -> None:
        """If the limit is exceeded, drop what was used least recently, down to three quarters."""
        files = []
        young = time.time() - _ABANDONED_SECONDS
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another process sweeps, too
                status = path.stat()
                if not path.name.startswith(_UNFINISHED) or status.st_mtime < young:
                    files.append((status.st_mtime_ns, status.st_size, path))
        total_bytes = sum(size for _, size, _ in files)
        if total_bytes <= self._limit_bytes:
            return
        for _, size, path in sorted(files):
            if total_bytes <= _KEPT_FRACTION * self._limit_bytes:
                return
            path.unlink(missing_ok=True)
            total_bytes -= size


def _limit_bytes() -> int:
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        megabytes = float(text) if text else DEFAULT_LIMIT_MEGABYTES
    except ValueError as error:
        raise ValueError(f"{LIMIT_VARIABLE} is {text!r} and should be a number") from error
    return int(megabytes * 2**20)
