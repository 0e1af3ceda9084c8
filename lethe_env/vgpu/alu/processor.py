"""What the processor that code is written for can do."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm


@cache
def has(feature: str) -> bool:
    """Whether this machine's processor has a feature, by LLVM's name for it."""
    return bool(llvm.get_host_cpu_features().get(feature, False))
