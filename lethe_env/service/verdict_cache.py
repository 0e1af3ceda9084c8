"""Verdicts that need not be found out again, in memory and on disk."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..gates.verdict import Verdict
from .fingerprint import code_fingerprint
from .jobs import Job
from .options import GraderOptions
from .wire import addressed, verdict_from_json, verdict_to_json

log = logging.getLogger(__name__)

KEPT_AFTER_TRIMMING = 0.8
"""Share of the disk limit that is left when the oldest files have been deleted."""


def cache_key(job: Job, options: GraderOptions, environment: Mapping[str, str]) -> str:
    """What a verdict depends on, as one hash.

    Args:
        job: the candidate and its task.
        options: how it is judged.
        environment: where it is judged: device and hardware.
    """
    parts = [code_fingerprint(), options.digest, dict(environment), job.digest]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(slots=True)
class VerdictCache:
    """Least recently used verdicts go first. Safe for several threads and processes at once.

    A file is a checksum, a newline, and the verdict's JSON. One that is torn or tampered with is
    deleted and counts as absent. Verdicts with `ERROR` findings are never kept.
    """

    folder: Path | None = None
    """Where files are kept; `None` keeps verdicts in memory only."""
    memory_verdicts: int = 4096
    disk_bytes: int = 1 << 30
    _memory: OrderedDict[str, Verdict] = field(default_factory=OrderedDict)
    _written_bytes: int | None = None
    """What the files take together, as far as known; `None` before the first count."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: str, job: Job) -> Verdict | None:
        """The verdict kept under a key, as the answer to a job."""
        with self._lock:
            found = self._memory.get(key)
            if found is not None:
                self._memory.move_to_end(key)
        if found is None:
            found = self._read(key, job)
            if found is not None:
                self._remember(key, found)
        return None if found is None else addressed(found, job)

    def put(self, key: str, verdict: Verdict) -> None:
        """Keep a verdict, unless it is void. A full disk costs no more than the file."""
        if verdict.errored:
            return
        self._remember(key, verdict)
        try:
            self._write(key, verdict)
        except OSError as error:
            log.warning("a verdict could not be kept in %s: %s", self.folder, error)

    def _remember(self, key: str, verdict: Verdict) -> None:
        with self._lock:
            self._memory[key] = verdict
            self._memory.move_to_end(key)
            while len(self._memory) > self.memory_verdicts:
                self._memory.popitem(last=False)

    def _read(self, key: str, job: Job) -> Verdict | None:
        if self.folder is None:
            return None
        path = _path(self.folder, key)
        try:
            checksum, _, body = path.read_bytes().partition(b"\n")
            if checksum.decode() != hashlib.sha256(body).hexdigest():
                raise ValueError("the checksum does not match")
            verdict = verdict_from_json(job, json.loads(body))
            os.utime(path)  # recently used
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("the kept verdict %s is ignored: %s", path, error)
            path.unlink(missing_ok=True)
            return None
        return verdict

    def _write(self, key: str, verdict: Verdict) -> None:
        if self.folder is None:
            return
        body = json.dumps(verdict_to_json(verdict), allow_nan=False).encode()
        path = _path(self.folder, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        temporary.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        temporary.replace(path)
        with self._lock:
            if self._written_bytes is not None:
                self._written_bytes += len(body)
            if self._written_bytes is None or self._written_bytes > self.disk_bytes:
                self._written_bytes = _trim(self.folder, self.disk_bytes)


def _path(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key}.json"


def _trim(folder: Path, limit_bytes: int) -> int:
    """Delete the files that were used least recently, if all take too much; returns what is left.

    Other processes may write and delete meanwhile.
    """
    files = []
    for path in folder.glob("*/*"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        files.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in files)
    if total <= limit_bytes:
        return total
    for _, size, path in sorted(files):
        if total <= limit_bytes * KEPT_AFTER_TRIMMING:
            break
        path.unlink(missing_ok=True)
        total -= size
    return total
