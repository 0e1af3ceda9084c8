"""The report: a page, a picture and the data behind them."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from .figure import draw
from .tables import (
    Rates,
    Results,
    broken_gates,
    candidates_table,
    completions_table,
    curve,
    rates,
    samples,
)

POLICIES = ("untrained", "allclose", "contract")
LABELS = {
    "untrained": "before training",
    "allclose": "trained on allclose",
    "contract": "trained on the contract",
}


def write_report(results: Results, folder: Path) -> None:
    """Write `report.md`, `curves.png`, `summary.json` and two Parquet tables into a folder."""
    for name, table in (
        ("completions", completions_table(results)),
        ("candidates", candidates_table(results)),
    ):
        pyarrow.parquet.write_table(pyarrow.table(table), folder / f"{name}.parquet")
    (folder / "summary.json").write_text(json.dumps(summary(results), indent=2) + "\n")
    draw(results, folder / "curves.png")
    (folder / "report.md").write_text(page(results))


def summary(results: Results) -> dict[str, Any]:
    """The numbers of the page."""
    return {
        "student": results.student,
        "tasks": list(results.tasks),
        "settings": asdict(results.settings),
        "versions": {name: version(name) for name in ("torch", "triton", "transformers", "trl")},
        "samples": {
            policy: {
                **asdict(rates(samples(results, policy))),
                "broken_gates": broken_gates(samples(results, policy)),
                "by_task": {
                    task: asdict(rates(samples(results, policy, task))) for task in results.tasks
                },
            }
            for policy in POLICIES
        },
        "curves": {arm: [asdict(point) for point in curve(results, arm)] for arm in POLICIES[1:]},
    }


def page(results: Results) -> str:
    """The report's text, Markdown."""
    settings = results.settings
    trained = rates(samples(results, "allclose"))
    lines = [
        "# allclose against the contract",
        "",
        f"Two copies of one policy ({results.student}), the same first weights, tasks and seed "
        f"{settings.seed}, {settings.steps} steps of GRPO with {settings.generations} completions "
        "a task. One is paid for what KernelBench's allclose rule accepts, the other for what the "
        "contract accepts; both earn more for faster kernels. Every completion of both runs was "
        "judged by both graders.",
        "",
        "![learning curves and broken gates](curves.png)",
        "",
        f"## {settings.samples} samples a task, after training",
        "",
        *_rates_table(results),
        "",
        f"Of what the allclose policy writes, allclose accepts {trained.allclose:.0%} and the "
        f"contract {trained.contract:.0%}. {trained.fooled:.0%} of its kernels are wrong in a way "
        "that its own grader cannot see.",
        "",
        "## Gates that accepted kernels break",
        "",
        "Share of the kernels accepted by allclose that each gate or channel rejects.",
        "",
        *_gates_table(results),
        "",
        "## By task",
        "",
        *_task_table(results),
        "",
        "## Files",
        "",
        "* `completions.parquet`: every completion word for word, its step, both verdicts and both "
        "rewards",
        "* `candidates.parquet`: every distinct kernel with its source text and who rejects it",
        "* `summary.json`: the numbers above and the learning curves",
        "",
    ]
    return "\n".join(lines)


def _rates_table(results: Results) -> list[str]:
    rows = [[LABELS[policy], *_rates_cells(rates(samples(results, policy)))] for policy in POLICIES]
    head = [
        "policy",
        "allclose accepts",
        "contract accepts",
        "gap",
        "speed-up over eager",
        "not judged",
    ]
    return _table(head, rows)


def _rates_cells(of: Rates) -> list[str]:
    speed = "not known" if of.mean_speedup is None else f"{of.mean_speedup:.2f}×"
    return [
        f"{of.allclose:.0%}",
        f"{of.contract:.0%}",
        f"{of.fooled:.0%}",
        speed,
        f"{of.void} of {of.void + of.judged}",
    ]


def _gates_table(results: Results) -> list[str]:
    broken = {policy: broken_gates(samples(results, policy)) for policy in POLICIES}
    names = sorted({name for shares in broken.values() for name in shares})
    rows = [[name, *(f"{broken[p].get(name, 0.0):.0%}" for p in POLICIES)] for name in names]
    return _table(["rejected by", *(LABELS[policy] for policy in POLICIES)], rows)


def _task_table(results: Results) -> list[str]:
    rows = []
    for task in results.tasks:
        cells = [rates(samples(results, policy, task)) for policy in POLICIES]
        rows.append([task, *(f"{c.allclose:.0%} / {c.contract:.0%}" for c in cells)])
    heads = [f"{LABELS[policy]}: allclose / contract" for policy in POLICIES]
    return _table(["task", *heads], rows)


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
