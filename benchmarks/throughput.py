"""Verdicts per second against workers, with caches cold and warm, and what each caller adds.

Every candidate is an honest kernel of its own: other tile sizes and warps, so other compiles.

`cold`   new candidates for a task whose truths are not known either.
`warm`   new candidates, truths known: training, where one task is graded thousands of times.
`known`  the same candidates again, answered by the verdict cache of a new pool from disk, and
         of a pool and of a broker from memory.

Workers are warm before the clock starts; `start` says what that took. The overhead of a caller is
its time per verdict with a verifier that answers at once, less that verifier's own.

Usage: python benchmarks/throughput.py [--json] [--device interpreter] [--workers 1 2 4]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.console import Console
from rich.table import Table

from lethe_env.env.kernel_env import KernelEnv
from lethe_env.gates.verdict import Verdict
from lethe_env.kernels.controls import HONEST
from lethe_env.service.client import connect, stop_brokers
from lethe_env.service.jobs import Job, Progress, Verifier
from lethe_env.service.options import GraderOptions
from lethe_env.service.pool import Pool
from lethe_env.tasks.catalog import find_task
from lethe_env.tasks.model import Task
from lethe_env.trl import RewardFunction, Scorer

CANDIDATE = "relu"
REPEATS = 50
"""How often known verdicts are asked for, as one takes less than a millisecond."""
WARM_UP = """
import torch
n = 8
class Model(torch.nn.Module):
    def forward(self, x):
        return x + {number}
def get_inputs():
    return [torch.randn(n)]
def get_init_inputs():
    return []
"""

Caller = Callable[[Verifier, Sequence[Job]], object]


@dataclass(frozen=True)
class Row:
    """One measurement."""

    state: str
    verifier: str
    workers: int
    verdicts: int
    seconds: float

    def to_json(self) -> dict[str, object]:
        """JSON-ready mapping."""
        return {**asdict(self), "verdicts_per_second": self.verdicts / self.seconds}


class Replay:
    """A verifier that has the verdict already."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict

    def grade_many(self, jobs: Sequence[Job], progress: Progress | None = None) -> list[Verdict]:
        """The same for every job, at once, except that a job is always hashed."""
        return [self._verdict for job in jobs if job.digest]

    def close(self) -> None:
        """Nothing to end."""


def through_environment(verifier: Verifier, jobs: Sequence[Job]) -> None:
    """One episode of one turn for each candidate."""
    environment = KernelEnv(tasks=[job.task for job in jobs[:1]], verifier=verifier)
    for job in jobs:
        environment.reset(seed=0)
        environment.step(job.source)


def through_reward(verifier: Verifier, jobs: Sequence[Job]) -> None:
    """One reward call of a trainer for the whole batch, with nothing remembered."""
    reward = RewardFunction("contract", scorer=Scorer(verifier))
    reward([job.source for job in jobs], task=[job.task.id for job in jobs])


CALLERS: tuple[tuple[str, Caller], ...] = (
    ("verifier", lambda verifier, jobs: verifier.grade_many([Job(j.task, j.source) for j in jobs])),
    ("KernelEnv", through_environment),
    ("TRL reward", through_reward),
)
"""Ways to ask a verifier, by name; the first is the bare one."""


def candidates(count: int) -> list[str]:
    """Sources of different honest kernels."""
    control = next(control for control in HONEST if control.name == CANDIDATE)
    source = control.source()
    shapes = [(block, warps) for block in (1024, 512, 2048, 256, 4096) for warps in (4, 8, 2, 1)]
    if count > len(shapes):
        raise SystemExit(f"at most {len(shapes)} different candidates can be made")
    return [
        source.replace("1024", str(block)).replace("BLOCK=", f"num_warps={warps}, BLOCK=")
        for block, warps in shapes[:count]
    ]


def throughput(options: GraderOptions, workers: int, count: int) -> list[Row]:
    """All states of the caches for one number of workers."""
    task = find_task(next(control.task for control in HONEST if control.name == CANDIDATE))
    sources = candidates(2 * count)
    cold = [Job(task, source) for source in sources[:count]]
    warm = [Job(task, source) for source in sources[count:]]
    rows = []
    with Pool(options, workers) as pool:
        rows.append(_timed("start", "pool", workers, lambda: _warm_up(pool, workers), workers))
        rows.append(_timed("cold", "pool", workers, lambda: pool.grade_many(cold), count))
        rows.append(_timed("warm", "pool", workers, lambda: pool.grade_many(warm), count))
    known = [*cold, *warm]
    with Pool(options, workers) as pool:
        _warm_up(pool, 1, first=workers)
        rows.append(_known("known, disk", "pool", workers, pool, known))
        rows.append(_known("known, memory", "pool", workers, pool, known * REPEATS))
    broker = connect(options, workers)
    broker.grade_many(known)
    rows.append(_known("known, memory", "broker", workers, broker, known * REPEATS))
    stop_brokers()
    return rows


def overheads(options: GraderOptions, count: int) -> list[dict[str, object]]:
    """What each caller adds to a verdict, in milliseconds."""
    task = find_task(next(control.task for control in HONEST if control.name == CANDIDATE))
    jobs = [Job(task, source) for source in candidates(count)]
    with Pool(options, 1) as pool:
        replay = Replay(pool.grade_many(jobs[:1])[0])
    rows: list[dict[str, object]] = []
    bare_ms = None
    for name, call in CALLERS:
        call(replay, jobs)  # imports and caches
        started = time.perf_counter()
        for _ in range(REPEATS):
            call(replay, jobs)
        each_ms = 1e3 * (time.perf_counter() - started) / (REPEATS * count)
        bare_ms = each_ms if bare_ms is None else bare_ms
        rows.append({"caller": name, "ms": each_ms, "overhead_ms": each_ms - bare_ms})
    return rows


def _warm_up(pool: Pool, workers: int, first: int = 0) -> None:
    """Occupy every worker once, with a task that nothing else asks about."""
    references = [WARM_UP.format(number=first + number) for number in range(workers)]
    tasks = [Task(id="warm/up", source=reference) for reference in references]
    pool.grade_many([Job(task, task.source.replace("Model(", "ModelNew(")) for task in tasks])


def _known(state: str, name: str, workers: int, verifier: Verifier, jobs: Sequence[Job]) -> Row:
    return _timed(state, name, workers, lambda: verifier.grade_many(jobs), len(jobs))


def _timed(
    state: str, verifier: str, workers: int, work: Callable[[], object], verdicts: int
) -> Row:
    started = time.perf_counter()
    work()
    return Row(state, verifier, workers, verdicts, time.perf_counter() - started)


def show(rows: Sequence[Row], added: Sequence[dict[str, object]]) -> None:
    """Print the rows as tables."""
    console = Console()
    table = Table("state", "verifier", "workers", "verdicts", "seconds", "per second")
    for row in rows:
        rate = f"{row.verdicts / row.seconds:.4g}"
        numbers = (str(row.workers), str(row.verdicts), f"{row.seconds:.2f}", rate)
        table.add_row(row.state, row.verifier, *numbers)
    console.print(table)
    table = Table("caller", "ms per verdict", "overhead (ms)")
    for item in added:
        table.add_row(str(item["caller"]), f"{item['ms']:.4f}", f"{item['overhead_ms']:.4f}")
    console.print(table)


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description="Verdicts per second.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--verdicts", type=int, default=4, help="candidates per state, at most 10")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="lb-") as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder  # a broker of our own, not the user's
        for workers in arguments.workers:
            cache = Path(folder) / f"cache-{workers}"
            os.environ["LETHE_CACHE_DIR"] = str(cache)  # native code is kept there, too
            options = GraderOptions(device=arguments.device, cache=cache)
            rows += throughput(options, workers, arguments.verdicts)
        added = overheads(options, arguments.verdicts)
    if arguments.json:
        rates = [row.to_json() for row in rows]
        print(json.dumps({"throughput": rates, "overhead": added}, indent=2))
    else:
        show(rows, added)


if __name__ == "__main__":
    main()
