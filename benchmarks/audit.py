"""How many candidates an audit judges per second and core, and how that scales.

The corpus is synthetic, half honest kernels and half mutants of a few cheap tasks, each candidate
new to the verifier. References are looked at once before the clock starts, and their truths are
on disk, as they are for all but the first candidates of a reference. Every run starts with its
workers warm and its candidates' compiles absent. CPU seconds are those of this process and of its
children, starting and warming up included; on a busy machine they say more than the wall clock
does. Ray's actors are no children, so there is no CPU time for them.

Usage: python benchmarks/audit.py [--json] [--rows 24] [--workers 1 2] [--device vgpu]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.console import Console
from rich.table import Table

from lethe_env.audit.bench import Bench, LocalBench
from lethe_env.audit.judge import Judged
from lethe_env.audit.row import Row, Stage
from lethe_env.audit.synthetic import SPOILT, Known, synthetic
from lethe_env.service.options import GraderOptions

TASKS = ("relu", "softmax", "rms_norm", "sum")
COMPILED = ("objects", "resources", "verdicts")
"""Folders of the cache that belong to candidates."""


def rows_of(count: int, salt: str) -> list[Row]:
    """Candidates that nobody has seen: the same for all runs but for a comment."""
    chosen = [row for row in synthetic() if _cheap(row)]
    return [
        Row(
            id=f"{index}",
            reference=str(known.reference),
            candidate=f"{known.candidate}\n# {salt} {index}\n",
        )
        for index in range(count)
        for known in (chosen[index % len(chosen)],)
    ]


def _cheap(row: Known) -> bool:
    kind, _, rest = row.id.partition("/")
    task, _, spoilt = rest.partition("/")
    return task in TASKS and (kind == "honest" or spoilt == next(iter(SPOILT)))


def measure(rows: int, workers: list[int], device: str) -> list[dict[str, Any]]:
    """One entry per run, wall and CPU time in seconds."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LETHE_CACHE_DIR"] = folder
        options = GraderOptions(device=device, cache=Path(folder))
        with closing(LocalBench(options, max(workers))) as bench:
            drain(bench, rows_of(2 * len(TASKS), "truths"))
        for count in workers:
            found.append(
                _timed("pool", count, rows, lambda n=count: LocalBench(options, n), folder)
            )
        if find_spec("ray") is not None:
            from lethe_env.audit.ray import RayBench

            for count in workers:
                found.append(
                    _timed("ray", count, rows, lambda n=count: RayBench(options, n), folder)
                )
    return found


def _timed(
    where: str, workers: int, rows: int, open_bench: Callable[[], Bench], cache: str
) -> dict[str, Any]:
    for name in COMPILED:
        shutil.rmtree(Path(cache, name), ignore_errors=True)
    spent = _cpu_s()
    bench = open_bench()
    try:
        drain(bench, rows_of(2 * workers, f"{where} {workers} warm"))
        started = time.perf_counter()
        judged = drain(bench, rows_of(rows, f"{where} {workers}"))
        wall_s = time.perf_counter() - started
    finally:
        bench.close()
    cpu_s = _cpu_s() - spent  # children count once they have ended
    return {
        "where": where,
        "workers": workers,
        "rows": len(judged),
        "judged": sum(each.outcome.stage is Stage.GATED for each in judged),
        "wall_s": wall_s,
        "cpu_s": cpu_s if where == "pool" else None,
    }


def drain(bench: Bench, rows: Iterable[Row]) -> list[Judged]:
    """Judge rows, as many at a time as there is room for."""
    judged: list[Judged] = []
    put = 0
    for row in rows:
        while put - len(judged) >= bench.capacity:
            judged += filter(None, [bench.get(1.0)])
        bench.put(row)
        put += 1
    while len(judged) < put:
        judged += filter(None, [bench.get(1.0)])
    return judged


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table("where", "workers", "rows", "judged", "rows/s", "rows/s per worker", "CPU s/row")
    for run in found:
        rate = run["rows"] / run["wall_s"]
        cpu = "" if run["cpu_s"] is None else f"{run['cpu_s'] / run['rows']:.2f}"
        table.add_row(
            *(run["where"], str(run["workers"]), str(run["rows"]), str(run["judged"])),
            *(f"{rate:.3f}", f"{rate / run['workers']:.3f}", cpu),
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    found = measure(arguments.rows, arguments.workers, arguments.device)
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        Console().print(_table(found))


if __name__ == "__main__":
    main()
