"""`lethe kernelbench`: evaluate and analyse the runs of KernelBench's users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ..command_line import (
    ALL_TARGETS,
    HARNESS,
    PASSED,
    AsJson,
    Device,
    Targets,
    UsageError,
    grader_options,
    log,
    out,
)
from ..gates.kernelbench_rule import TRIALS, Rule
from ..progress import shown
from ..service.client import connect
from .analysis import analyse, read_baseline
from .evaluation import PRECISIONS, Settings
from .metadata import get_torch_dtype_from_string
from .problems import DEFAULT_DATASET, load_level
from .result import CHECKS
from .run_evaluation import evaluate_run, harness_failures
from .runs import read_results

kernelbench_app = typer.Typer(
    no_args_is_help=True, help="Evaluate runs of KernelBench, and count as it does."
)

RunFolder = Annotated[
    Path, typer.Argument(help="A run: level_L_problem_P_sample_S_kernel.py and results.")
]
Level = Annotated[int, typer.Option(help="Which level of KernelBench.")]
Problems = Annotated[
    str, typer.Option("--dataset", help="A checkout of KernelBench, or a table of problems.")
]
PassAt = Annotated[str, typer.Option(help="For which k pass@k is counted, comma-separated.")]


@kernelbench_app.command("eval")
def evaluate(
    run: RunFolder,
    level: Level,
    dataset: Problems = DEFAULT_DATASET,
    check: Annotated[
        str, typer.Option(help="What `correctness` is: contract, or kernelbench for its own rule.")
    ] = "contract",
    trials: Annotated[int, typer.Option(help="Trials of KernelBench's rule.")] = TRIALS,
    precision: Annotated[str, typer.Option(help="Of its rule: fp32, fp16 or bf16.")] = "fp32",
    tolerance: Annotated[
        float | None, typer.Option(help="Of its rule; version 0 had 0.01. By default by precision.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write results here instead of into the run.")
    ] = None,
    pass_at: PassAt = "1",
    workers: Annotated[int | None, typer.Option(help="Processes that grade.")] = None,
    device: Device = "auto",
    targets: Targets = ALL_TARGETS,
    as_json: AsJson = False,
) -> None:
    """Judge every kernel of a run. Exits with 3 if some could not be judged, else 0."""
    options = grader_options(device, targets)
    if not run.is_dir():
        raise UsageError(f"no run folder at {run}")
    try:
        problems = load_level(dataset, level)
        settings = Settings(
            check=check,
            rule=Rule(trials=trials, precision=_precision(precision), tolerance=tolerance),
            measure_performance=True,
        )
        with shown(log, "kernels") as report:
            results = evaluate_run(
                run,
                problems,
                settings,
                connect(options, workers),
                options,
                output=output,
                pass_at=_counts(pass_at),
                progress=lambda done, total: report("kernels", done, total),
            )
        found = analyse(results, problems, pass_at=_counts(pass_at))
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    _show(found, as_json)
    raise typer.Exit(HARNESS if harness_failures(results) else PASSED)


@kernelbench_app.command("analyze")
def analyze(
    run: RunFolder,
    level: Level,
    dataset: Problems = DEFAULT_DATASET,
    baseline: Annotated[
        Path | None, typer.Option(help="Baseline times, as in KernelBench's results/timing.")
    ] = None,
    pass_at: PassAt = "1",
    as_json: AsJson = False,
) -> None:
    """Count a run's results: KernelBench's rule and the contract side by side."""
    try:
        times = None if baseline is None else read_baseline(baseline, level)
        results = read_results(run)
        if not results.rows:
            raise ValueError(f"{run} holds no results; `lethe kernelbench eval` makes them")
        problems = load_level(dataset, level)
        found = analyse(results, problems, baseline=times, pass_at=_counts(pass_at))
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    _show(found, as_json)


def _precision(name: str) -> str:
    return PRECISIONS[get_torch_dtype_from_string(name)]


def _counts(text: str) -> tuple[int, ...]:
    found = tuple(int(part) for part in text.split(",") if part.strip())
    if not found or min(found) < 1:
        raise ValueError(f"--pass-at takes counts such as 1,5,10, not {text!r}")
    return found


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found, indent=2))
        return
    out.print(
        f"level {found['level']}: {found['total_eval']} of {found['total_count']} problems have "
        f"results, {found['unjudged_count']} could not be judged"
    )
    sides = {check: found[check] for check in CHECKS if found[check] is not None}
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("")
    for check in sides:
        table.add_column(check, justify="right")
    for name in ("compiled_count", "correct_count", "correctness_rate", "geo_mean_speedup"):
        table.add_row(name, *(_number(side[name]) for side in sides.values()))
    for p in next(iter(sides.values()), {}).get("fast_p", {}):
        table.add_row(f"fast_{p}", *(_number(side["fast_p"][p]) for side in sides.values()))
    for name in next(iter(sides.values()), {}).get("pass_at_k", {}):
        table.add_row(name, *(_number(side["pass_at_k"][name]) for side in sides.values()))
    for name in ("untimed_count", "speed_kinds"):
        table.add_row(name, *(_number(side[name]) for side in sides.values()))
    out.print(table)


def _number(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
