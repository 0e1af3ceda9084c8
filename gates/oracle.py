"""The oracle: truths of probes, cached in memory and on disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch

from ..tasks.model import Task
from ..tasks.probe import Probe
from .derivation import compute_truth
from .truth import TENSOR_FIELDS, Truth, pack, unpack

ROOMS = (Path(__file__).parent, Path(__file__).parent.parent / "tasks")
"""Every file that a truth follows from lies directly in one of these."""


@cache
def code_fingerprint() -> str:
    """Hash of the code that draws inputs and derives truths.

    Part of every cache key, so that a truth derived by other code is never read back.
    """
    content = hashlib.sha256()
    for room in ROOMS:
        for path in sorted(room.glob("*.py")):
            content.update(path.read_bytes())
    return content.hexdigest()


@dataclass(slots=True)
class Oracle:
    """Truths by (task, probe, declared precision), in memory and on disk.

    Depends on the task and the probe alone, never on a candidate, so that in training, where one
    task is graded thousands of times, its cost goes to zero.
    """

    samples: int = 16
    """Monte-Carlo runs of the rounding model."""
    cache_directory: Path | None = None
    """Where truths are kept; `None` keeps them in memory only."""
    memory_limit_bytes: int = 1 << 30
    """Truths are dropped from memory, oldest first, beyond this."""
    _memory: OrderedDict[str, Truth] = field(default_factory=OrderedDict)
    _memory_bytes: int = 0

    def truth(self, task: Task, probe: Probe, *, tf32: bool) -> Truth:
        """The truth of a probe.

        Args:
            task: the task.
            probe: the question; layout, repeat and muting do not change the truth's key more
                than they change the values.
            tf32: whether matrix products may round float32 inputs to TF32.
        """
        key = self._key(task, probe, tf32)
        if key in self._memory:
            self._memory.move_to_end(key)
            return self._memory[key]
        found = self._read(key)
        if found is None:
            found = compute_truth(task, probe, tf32=tf32, samples=self.samples)
            self._write(key, found)
        self._keep(key, found)
        return found

    def _key(self, task: Task, probe: Probe, tf32: bool) -> str:
        parts = [code_fingerprint(), torch.__version__, self.samples]
        parts += [task.digest, probe.question.digest, tf32]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _keep(self, key: str, truth: Truth) -> None:
        self._memory[key] = truth
        self._memory_bytes += _bytes(truth)
        while self._memory_bytes > self.memory_limit_bytes and len(self._memory) > 1:
            _, dropped = self._memory.popitem(last=False)
            self._memory_bytes -= _bytes(dropped)

    def _path(self, key: str) -> Path | None:
        if self.cache_directory is None:
            return None
        return self.cache_directory / key[:2] / f"{key}.pt"

    def _read(self, key: str) -> Truth | None:
        path = self._path(key)
        if path is None or not path.exists():
            return None
        try:
            return unpack(torch.load(path, weights_only=True))
        except Exception:  # noqa: BLE001 - whatever a torn file raises, it costs one recomputation
            path.unlink(missing_ok=True)
            return None

    def _write(self, key: str, truth: Truth) -> None:
        path = self._path(key)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        torch.save(pack(truth), temporary)
        temporary.replace(path)


def _bytes(truth: Truth) -> int:
    return sum(
        getattr(item, name).nbytes
        for item in (*truth.outputs, *truth.gradients)
        for name in TENSOR_FIELDS
    )
