"""The evaluation of a run: every kernel under both checks, written as it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..service.jobs import Verifier
from ..service.options import GraderOptions
from ..tasks.model import Task
from .evaluation import Settings, evaluate_many
from .problems import Dataset
from .result import CHECKS, NOT_JUDGED, KernelExecResult
from .runs import (
    PASS_AT_K,
    TABLE,
    Results,
    Sample,
    digest,
    locked,
    read_results,
    samples,
    write_json,
    write_table,
)
from .scores import pass_at_k_results

BATCH = 16
"""Kernels that are judged side by side; results are on disk after each batch, and a run that is
killed meanwhile finds the verdicts of the batch in the verifier's cache."""

Progress = Callable[[int, int], None]
"""Called with the kernels that have been judged and those there are."""


def evaluate_run(
    folder: Path,
    dataset: Dataset,
    settings: Settings,
    verifier: Verifier,
    options: GraderOptions,
    *,
    output: Path | None = None,
    pass_at: Sequence[int] = (1,),
    progress: Progress | None = None,
) -> Results:
    """Judge every kernel of a run that has not been judged; never raises because of one.

    Args:
        folder: the run: `level_L_problem_P_sample_S_kernel.py`.
        dataset: the problems of the level.
        settings: which check `correctness` is to be, and how it is asked. The other one is asked
            too and stands in `metadata["checks"]`.
        verifier: who judges.
        options: what the verifier was made with.
        output: where results are written; by default into the run's folder.
        pass_at: for which k pass@k is written, where problems have several samples.
        progress: told how far it has come.

    Raises:
        ValueError: no such run, or results that were written otherwise.
    """
    wanted = samples(folder, dataset.level)
    place = output if output is not None else folder
    held = _held(settings)
    with locked(place):
        results = read_results(place)
        left = [sample for sample in wanted if not results.kept(sample, held)]
        tasks: dict[int, Task | str] = {}
        try:
            for start in range(0, len(left), BATCH):
                if progress is not None:
                    progress(len(wanted) - len(left) + start, len(wanted))
                batch = left[start : start + BATCH]
                for sample in batch:
                    if sample.problem_id not in tasks:
                        tasks[sample.problem_id] = _task(dataset, sample.problem_id)
                _judge(batch, tasks, settings, verifier, options, results)
                results.write()
        finally:
            _summarise(place, dataset.level, results, pass_at)
        if progress is not None:
            progress(len(wanted), len(wanted))
    return results


def harness_failures(results: Results) -> int:
    """Samples that the harness failed to judge; the next run tries them again."""
    rows = [row for entries in results.rows.values() for row in entries]
    return sum(row["metadata"].get("status") == NOT_JUDGED for row in rows)


def _held(settings: Settings) -> dict[str, Any]:
    """What has to be equal for results to lie in one file."""
    return {
        "check": settings.check,
        "rule": settings.rule.to_json(),
        "measure_performance": settings.measure_performance,
    }


def _task(dataset: Dataset, problem_id: int) -> Task | str:
    try:
        return dataset.get_problem_by_id(problem_id).task()
    except ValueError as error:
        return str(error)


def _judge(
    batch: Sequence[Sample],
    tasks: Mapping[int, Task | str],
    settings: Settings,
    verifier: Verifier,
    options: GraderOptions,
    results: Results,
) -> None:
    sources = [sample.source() for sample in batch]
    pairs = [(tasks[s.problem_id], source) for s, source in zip(batch, sources, strict=True)]
    by_check = {
        check: evaluate_many(pairs, replace(settings, check=check), verifier, options)
        for check in CHECKS
    }
    for index, (sample, source) in enumerate(zip(batch, sources, strict=True)):
        answers = {check: found[index] for check, found in by_check.items()}
        entries = {"settings": _held(settings), "source_digest": digest(source)}
        results.put(sample, _combined(answers, settings.check, entries))


def _combined(
    answers: Mapping[str, KernelExecResult], check: str, entries: Mapping[str, Any]
) -> KernelExecResult:
    """The answer of the chosen check, with the other one's beside it."""
    chosen = answers[check]
    checks = {name: found.correctness if found.judged else None for name, found in answers.items()}
    rule = {**answers["kernelbench"].metadata}
    own = {key: rule[key] for key in _TRIAL_KEYS if key in rule}
    metadata = {
        **chosen.metadata,
        "checks": checks,
        "compiled_by_rule": answers["kernelbench"].compiled,
        "trials": own,
        "contract": answers["contract"].metadata.get("contract"),
        **entries,
    }
    return chosen.model_copy(update={"metadata": metadata})


_TRIAL_KEYS = (
    "correctness_trials",
    "correctness_issue",
    "runtime_error",
    "runtime_error_name",
    "max_difference",
    "avg_difference",
)


def _summarise(place: Path, level: int, results: Results, pass_at: Sequence[int]) -> None:
    if not results.rows:
        return
    write_table(place / TABLE, level, results)
    correct = results.correct()
    if any(len(entries) > 1 for entries in correct.values()):
        write_json(place / PASS_AT_K, pass_at_k_results(correct, pass_at), indent=2)
