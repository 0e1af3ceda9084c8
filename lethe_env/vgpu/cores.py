"""How many cores this process may really use."""

from __future__ import annotations

import os
from pathlib import Path

THREADS_VARIABLE = "LETHE_VGPU_THREADS"
"""Most threads that the virtual GPU uses in one process."""

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Cores by affinity, and no more than the container's quota."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = _QUOTA.read_text().split()
    except (OSError, ValueError):  # no such control group
        return cores
    if quota == "max":
        return cores
    return max(1, min(cores, int(quota) // int(period)))


def default_threads() -> int:
    """Threads for the virtual GPU: what `LETHE_VGPU_THREADS` says, else one per usable core.

    Raises:
        ValueError: the variable holds no positive number.
    """
    text = os.environ.get(THREADS_VARIABLE, "")
    if not text:
        return usable_cores()
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{THREADS_VARIABLE} must be a number of threads, 1 or more, not {text!r}")
    return int(text)
