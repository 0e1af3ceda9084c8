"""One at a time on a GPU while something is being timed."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(device: str) -> Iterator[None]:
    """Keep every other timing of this user off the GPU; other devices have no clock to disturb.

    The lock is a file's, so it binds the workers of all pools on the node and is free again as
    soon as its holder ends, however it ends. Which GPU it is goes by `CUDA_VISIBLE_DEVICES`,
    whose first entry is the one that is used; name GPUs alike for all pools of a node.

    Args:
        device: `cuda`, or another one, for which nothing is locked.
    """
    if device != "cuda":
        yield
        return
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"
    path = Path(tempfile.gettempdir()) / f"lethe-gpu-{os.getuid()}-{gpu.replace('/', '-')}.lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
