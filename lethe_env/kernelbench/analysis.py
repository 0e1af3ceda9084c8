"""The analysis of a run: KernelBench's counts, fast_p and pass@k, for each check side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .problems import Dataset
from .result import CHECKS
from .runs import Results, judged
from .scores import FAST_P, geometric_mean, pass_at_k_results

Row = Mapping[str, Any]


def read_baseline(path: Path, level: int) -> dict[str, float]:
    """Baseline times in milliseconds by file name, from a file as KernelBench ships them.

    Raises:
        ValueError: the file is no such baseline.
    """
    try:
        table = json.loads(path.read_text())[f"level{level}"]
        return {name: float(entry["mean"]) for name, entry in table.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no baseline times of level {level}: {error}") from error


def analyse(
    results: Results,
    dataset: Dataset,
    *,
    baseline: Mapping[str, float] | None = None,
    pass_at: Sequence[int] = (1,),
) -> dict[str, Any]:
    """Counts and rates by check, JSON-ready.

    As in KernelBench, counts and fast_p are about sample 0 of each problem and a problem without
    one counts as wrong. What could not be judged is left out of every rate and counted apart.

    Args:
        results: the run's.
        dataset: the problems of the level.
        baseline: times by file name; without them speeds are those that the verifier compared.
        pass_at: for which k.
    """
    first = {
        int(problem): row
        for problem, rows in results.rows.items()
        for row in rows
        if row["sample_id"] == 0 and int(problem) in dataset.problems
    }
    return {
        "level": dataset.level,
        "total_count": len(dataset),
        "total_eval": len(results.rows),
        "unjudged_count": sum(not judged(row["metadata"]) for row in first.values()),
        **{check: _side(check, results, first, dataset, baseline, pass_at) for check in CHECKS},
    }


def opinion(row: Row, check: str) -> bool | None:
    """What a check says of a row; rows that KernelBench wrote hold its own opinion alone."""
    checks = row["metadata"].get("checks")
    if checks is not None:
        return checks.get(check)
    own = row["metadata"].get("check", "kernelbench")
    return row["correctness"] if own == check else None


def _side(
    check: str,
    results: Results,
    first: Mapping[int, Row],
    dataset: Dataset,
    baseline: Mapping[str, float] | None,
    pass_at: Sequence[int],
) -> dict[str, Any] | None:
    """The numbers of one check; `None` if no sample was asked it."""
    every = [row for rows in results.rows.values() for row in rows]
    if all(opinion(row, check) is None for row in every):
        return None
    known = {problem: row for problem, row in first.items() if opinion(row, check) is not None}
    unjudged = sum(opinion(row, check) is None for row in first.values())
    count = len(dataset) - unjudged
    correct = {problem: row for problem, row in known.items() if opinion(row, check)}
    compiled = sum(bool(row["compiled"]) for row in known.values())
    ratios = [_speedup(row, dataset, problem, baseline) for problem, row in correct.items()]
    timed = [ratio for ratio, _ in ratios if ratio is not None]
    samples = {
        problem: [bool(said) for row in rows if (said := opinion(row, check)) is not None]
        for problem, rows in sorted(results.rows.items(), key=lambda item: int(item[0]))
    }
    return {
        "judged_count": count,
        "compiled_count": compiled,
        "correct_count": len(correct),
        "compilation_rate": compiled / count if count else 0.0,
        "correctness_rate": len(correct) / count if count else 0.0,
        "geo_mean_speedup": geometric_mean(timed),
        "fast_p": {str(p): _fast(p, timed, len(correct), count) for p in FAST_P},
        "speed_kinds": sorted({kind for _, kind in ratios if kind}),
        "untimed_count": len(ratios) - len(timed),
        "pass_at_k": pass_at_k_results(samples, pass_at)["averages"],
    }


def _fast(p: float, timed: Sequence[float], correct: int, count: int) -> float:
    """Share of problems with a correct kernel faster than p; at p = 0 whether timed or not."""
    if not count:
        return 0.0
    return (correct if p == 0 else sum(ratio > p for ratio in timed)) / count


def _speedup(
    row: Row, dataset: Dataset, problem: int, baseline: Mapping[str, float] | None
) -> tuple[float | None, str]:
    """Baseline over kernel time and where it comes from, where there are times."""
    if row["runtime"] > 0 and baseline is not None:
        time_ms = baseline.get(dataset.problems[problem].name)
        return (None, "") if time_ms is None else (time_ms / row["runtime"], "measured")
    modelled = row["metadata"].get("modelled_speed")
    return (None, "") if modelled is None else (modelled["speedup"], modelled["kind"])
