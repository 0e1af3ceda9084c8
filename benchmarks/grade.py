"""Where the time of a verdict goes: three candidates, each in three states of the caches.

`first` has neither truths nor compiles, `warm` has the task's truths and this candidate's
compiles on disk, as when a candidate is seen again. Phases: load (fork and import of the source),
plan, oracle, probes, compile (ahead of time, for RES-02), judge. `start` is the warm server's own
start, once a session.

Usage: python benchmarks/grade.py [--json] [--device interpreter]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.console import Console
from rich.table import Table

from lethe_env.grader import Grader
from lethe_env.kernels.controls import HONEST

CANDIDATES = ("relu", "softmax", "matmul")
PHASES = ("load", "plan", "oracle", "probes", "compile", "judge")


def measure(device: str) -> list[dict[str, object]]:
    """One row per candidate and cache state; times in milliseconds."""
    controls = {control.name: control for control in HONEST}
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LETHE_CACHE_DIR"] = folder
        started = time.perf_counter()
        with Grader(device=device, cache=Path(folder)) as grader:
            grader.workshop().open("class ModelNew: pass").close()
            start_ms = 1e3 * (time.perf_counter() - started)
            for name in CANDIDATES:
                for state in ("first", "warm"):
                    rows.append(_row(grader, controls[name], state, start_ms))
    return rows


def _row(grader: Grader, control, state: str, start_ms: float) -> dict[str, object]:  # type: ignore[no-untyped-def]
    if state == "warm":
        grader.forget()  # truths come back from disk, not from memory
    started = time.perf_counter()
    verdict = grader.grade(control.task, control.source())
    total_ms = 1e3 * (time.perf_counter() - started)
    phases = {f"{phase}_ms": 1e3 * verdict.time_s.get(phase, 0.0) for phase in PHASES}
    return {
        "candidate": control.name,
        "task": control.task,
        "state": state,
        "passed": verdict.passed,
        "start_ms": start_ms,
        **phases,
        "total_ms": total_ms,
    }


def show(rows: list[dict[str, object]]) -> None:
    """Print the rows as a table."""
    table = Table("candidate", "state", "passed", *PHASES, "total (ms)", show_edge=False)
    for row in rows:
        times = [f"{row[f'{phase}_ms']:.0f}" for phase in PHASES]
        table.add_row(
            str(row["candidate"]),
            str(row["state"]),
            "yes" if row["passed"] else "NO",
            *times,
            f"{row['total_ms']:.0f}",
        )
    console = Console()
    console.print(f"start of the warm server: {rows[0]['start_ms']:.0f} ms")
    console.print(table)


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description="Where the time of a verdict goes.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    rows = measure(arguments.device)
    if arguments.json:
        print(json.dumps({"verdicts": rows}, indent=2))
    else:
        show(rows)


if __name__ == "__main__":
    main()
