"""The worker of `benchmarks/vgpu.py`: times every kernel in one of two ways.

A program of its own, because Triton decides when a kernel is defined how it will be run.

Usage: python benchmarks/vgpu_worker.py vgpu|interpreter THREADS [NAME …]
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from vgpu_kernels import Case, cases

REPEATS = 15
LARGEST_ERROR = 1e-2
"""Of the largest result: no measure of quality, but a kernel that computes something else is not
worth timing. TF32 factors have 10 fraction bits, so 512 random products err by some 1e-3 of the
largest sum."""


def work(way: str, threads: int, only: Sequence[str]) -> list[dict[str, Any]]:
    """First call, median of further calls, and eager, of every kernel; ms.

    The interpreter takes seconds and compiles nothing: it runs each kernel once.
    """
    torch.set_num_threads(1)
    chosen = [case for case in cases() if not only or case.name in only]
    if way == "interpreter":
        return [_interpreted(case) for case in chosen]
    from lethe_env.vgpu.driver import VirtualDriver
    from lethe_env.vgpu.session import Session

    driver = VirtualDriver(Session(threads=threads))
    driver.activate()
    _warm_up()
    rows = [_measured(case) for case in chosen]
    if driver.session.findings:
        raise SystemExit(f"a kernel is not as clean as it should be: {driver.session.findings[0]}")
    return rows


def _warm_up() -> None:
    """What a process does once is nobody's compile time."""
    from vgpu_kernels import _relu

    x = torch.zeros(16)
    _relu[(1,)](x, x, 16, block=16)


def _interpreted(case: Case) -> dict[str, Any]:
    return {"name": case.name, "run_ms": _once(case.run)}


def _measured(case: Case) -> dict[str, Any]:
    first_ms = _once(case.run)
    run_ms = statistics.median(_once(case.run) for _ in range(REPEATS))
    case.eager()
    eager_ms = statistics.median(_once(case.eager) for _ in range(REPEATS))
    expected = case.eager().double()
    error = (case.output.double() - expected).abs().max() / expected.abs().max()
    if not error < LARGEST_ERROR:
        raise SystemExit(f"{case.name} computes something else: error {error:.2g} of the largest")
    return {
        "name": case.name,
        "first_ms": first_ms,
        "run_ms": run_ms,
        "eager_ms": eager_ms,
        "memory_bound": case.memory_bound,
    }


def _once(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - started)


if __name__ == "__main__":
    print(json.dumps(work(sys.argv[1], int(sys.argv[2]), sys.argv[3:])))
