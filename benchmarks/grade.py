"""Where the time of a verdict goes: each candidate in three states of the caches, on one core.

`task new`: neither truths nor compiles are there. `candidate new`: the task's truths are on disk,
as they are in training, where every candidate is seen for the first time. `objects cached`: so are
this candidate's native code and the resources of its kernels.

Phases: plan; oracle, which belongs to the task; probes, of which load is forking a process and
importing the source, and translate is PTX to native code; compile, ahead of time for RES-02; judge.
The total is without the oracle. `start` is the warm server's own start, once a session.

Usage: python benchmarks/grade.py [--json] [--device interpreter] [--only NAME …]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.console import Console
from rich.table import Table

from lethe_env.grader import Grader
from lethe_env.kernels.controls import HONEST, Control

CANDIDATES = ("relu", "softmax", "layer_norm", "matmul")
STATES = ("task new", "candidate new", "objects cached")
PHASES = ("plan", "oracle", "probes", "load", "translate", "compile", "judge")
COMPILED = ("objects", "resources")
"""Folders of the cache that belong to candidates."""


def measure(device: str, names: Sequence[str]) -> dict[str, Any]:
    """Start of the server, and one row per candidate and state; times in milliseconds."""
    controls = {control.name: control for control in HONEST}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LETHE_CACHE_DIR"] = folder
        started = time.perf_counter()
        with Grader(device=device, cache=Path(folder)) as grader:
            grader.workshop().open("class ModelNew: pass").close()
            start_ms = 1e3 * (time.perf_counter() - started)
            for name in names:
                for state in STATES:
                    grader.forget()  # truths come back from disk, not from memory
                    if state == "candidate new":
                        for compiled in COMPILED:
                            shutil.rmtree(Path(folder, compiled), ignore_errors=True)
                    rows.append({"state": state, **_row(grader, controls[name])})
    return {"start_ms": start_ms, "verdicts": rows}


def _row(grader: Grader, control: Control) -> dict[str, Any]:
    started = time.perf_counter()
    verdict = grader.grade(control.task, control.source())
    elapsed_ms = 1e3 * (time.perf_counter() - started)
    phases = {f"{phase}_ms": 1e3 * verdict.time_s.get(phase, 0.0) for phase in PHASES}
    return {
        "candidate": control.name,
        "task": control.task,
        "passed": verdict.passed,
        **phases,
        "total_ms": elapsed_ms - phases["oracle_ms"],
    }


def show(found: dict[str, Any]) -> None:
    """Print the rows as a table."""
    table = Table("candidate", "state", "passed", *PHASES, "total (ms)", show_edge=False)
    for row in found["verdicts"]:
        times = [f"{row[f'{phase}_ms']:.0f}" for phase in (*PHASES, "total")]
        table.add_row(row["candidate"], row["state"], "yes" if row["passed"] else "NO", *times)
    console = Console(width=120)
    console.print(f"start of the warm server: {found['start_ms']:.0f} ms")
    console.print(table)


def main() -> None:
    """Parse arguments, keep to one core, measure, print."""
    parser = argparse.ArgumentParser(description="Where the time of a verdict goes.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", nargs="+", default=CANDIDATES, metavar="NAME")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    found = measure(arguments.device, arguments.only)
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)


if __name__ == "__main__":
    main()
