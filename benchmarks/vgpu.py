"""The virtual GPU against Triton's interpreter and eager torch, kernel by kernel.

Three workers, one after the other: the virtual GPU with empty caches, the virtual GPU with the
caches that the first one filled, and the interpreter. All sanitizers are on. `compile` is what the
first call of a kernel takes beyond a later one: Triton to PTX, PTX to native code. Times are for
one launch on this machine's CPU and say nothing about a GPU; eager torch has one thread.

Usage: python benchmarks/vgpu.py [--json] [--threads N] [--only NAME …]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.console import Console
from rich.table import Table

WORKER = Path(__file__).with_name("vgpu_worker.py")
COLUMNS = ("compile_cold_ms", "compile_cached_ms", "vgpu_ms", "interpreter_ms", "eager_ms")


def measure(threads: int, only: Sequence[str]) -> list[dict[str, Any]]:
    """One row per kernel, times in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        cold, cached = (_worker("vgpu", folder, threads, only) for _ in range(2))
        interpreted = _worker("interpreter", folder, threads, only)
    return [
        {
            "name": first["name"],
            "memory_bound": first["memory_bound"],
            "threads": threads,
            "compile_cold_ms": max(0.0, first["first_ms"] - first["run_ms"]),
            "compile_cached_ms": max(0.0, second["first_ms"] - second["run_ms"]),
            "vgpu_ms": second["run_ms"],
            "interpreter_ms": third["run_ms"],
            "eager_ms": second["eager_ms"],
        }
        for first, second, third in zip(cold, cached, interpreted, strict=True)
    ]


def _worker(way: str, folder: str, threads: int, only: Sequence[str]) -> list[dict[str, Any]]:
    caches = {"LETHE_CACHE_DIR": folder, "TRITON_CACHE_DIR": str(Path(folder) / "triton")}
    environment = {**os.environ, **caches}
    environment.pop("TRITON_INTERPRET", None)
    # The worker finds its kernels beside it.
    paths = [str(WORKER.parent), str(WORKER.parents[1]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if way == "interpreter":
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, str(WORKER), way, str(threads), *only]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows and two ratios as a table, and the ratios over all rows below it."""
    console = Console()
    titles = [column.removesuffix("_ms").replace("_", " ") + " (ms)" for column in COLUMNS]
    table = Table("kernel", *titles, "interpreter / vgpu", "vgpu / eager", show_edge=False)
    for row in rows:
        mark = " *" if row["memory_bound"] else ""
        table.add_row(
            row["name"] + mark,
            *(f"{row[column]:.2f}" for column in COLUMNS),
            f"{_speedup(row):.0f}",
            f"{_slowdown(row):.1f}",
        )
    console.print(table)
    mean = statistics.geometric_mean(_speedup(row) for row in rows)
    bound = [_slowdown(row) for row in rows if row["memory_bound"]]
    console.print("* memory-bound")
    console.print(f"threads of the virtual GPU: {rows[0]['threads']}")
    console.print(f"interpreter / vgpu: geometric mean {mean:.0f} of {len(rows)} kernels")
    if bound:
        console.print(f"vgpu / eager, memory-bound kernels: at most {max(bound):.1f}")


def _speedup(row: dict[str, Any]) -> float:
    return float(row["interpreter_ms"] / row["vgpu_ms"])


def _slowdown(row: dict[str, Any]) -> float:
    return float(row["vgpu_ms"] / row["eager_ms"])


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description="The virtual GPU against the interpreter.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--threads", type=int, default=1, help="threads of the virtual GPU")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these kernels only")
    arguments = parser.parse_args()
    rows = measure(arguments.threads, arguments.only)
    if arguments.json:
        print(json.dumps({"kernels": rows}, indent=2))
    elif rows:
        show(rows)


if __name__ == "__main__":
    main()
