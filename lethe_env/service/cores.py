"""How many cores this process may really use."""

from __future__ import annotations

import os
from pathlib import Path

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
