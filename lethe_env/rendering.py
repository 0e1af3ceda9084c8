"""Verdicts as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from .gates.comparison import describe
from .gates.speed import Speed
from .gates.verdict import Evidence, Finding, Status, Verdict
from .tasks.model import Task

_MARKS = {
    Status.PASS: ("pass", "green"),
    Status.FAIL: ("FAIL", "bold red"),
    Status.NOT_APPLICABLE: ("n/a", "dim"),
    Status.ERROR: ("ERROR", "magenta"),
}


_SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def verdict_view(verdict: Verdict) -> RenderableType:
    """The verdict of one candidate: one line per gate, then traces, evidence and the result."""
    parts: list[RenderableType] = []
    if verdict.fault:
        parts.append(Text(f"Not judged: {verdict.fault}", style="bold red"))
    else:
        parts.append(_gate_table(verdict))
        parts += [Text(f"{name}: {text}", style="red") for name, text in verdict.channels.items()]
        parts.append(Text(_kernel_sentence(verdict), style="dim"))
        if verdict.speed is not None:
            parts.append(Text(speed_sentence(verdict.speed), style="dim"))
        parts += [Text(f"{name}: {text}", style="dim") for name, text in verdict.notes.items()]
    parts.append(result_line(verdict))
    return Group(*parts)


def verdict_text(verdict: Verdict, title: str, width: int = 100) -> str:
    """The verdict of one candidate as plain text, `width` characters a line at most."""
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(title, markup=False)
    console.print(verdict_view(verdict))
    return console.file.getvalue()  # type: ignore[attr-defined]


def result_line(verdict: Verdict) -> Text:
    """One line: what an allclose grader says, and what the contract says."""
    line = Text("allclose: ")
    line.append(*_opinion(verdict.allclose))
    line.append("   contract: ")
    if verdict.errored:
        line.append("void, the harness broke", style="magenta")
    elif verdict.passed:
        line.append("accepts", style="green")
    else:
        line.append(f"rejects ({', '.join(verdict.rejected_by)})", style="bold red")
    return line


def _opinion(finding: Finding | None) -> tuple[str, str]:
    if finding is None or finding.status is Status.NOT_APPLICABLE:
        return "not asked", "dim"
    return ("accepts", "green") if finding.status is Status.PASS else ("rejects", "bold red")


def _gate_table(verdict: Verdict) -> Table:
    table = Table(show_edge=False, pad_edge=False, expand=True)
    table.add_column("gate", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("error / allowed", justify="right", no_wrap=True)
    table.add_column("finding", overflow="fold", ratio=1)
    for finding in verdict.findings:
        word, style = _MARKS[finding.status]
        ratio = finding.measured.get("worst_ratio")
        table.add_row(
            finding.gate,
            Text(word, style=style),
            "" if ratio is None else f"{ratio:.2g}",
            escape(finding.reason),
        )
    return table


def _kernel_sentence(verdict: Verdict) -> str:
    return {
        "triton": "Triton kernels do the work.",
        "decoy": "The output is right without the kernels: they are decoys.",
        "none": "No Triton kernel was launched.",
    }[verdict.kernel]


def speed_sentence(speed: Speed) -> str:
    """Times and ratio in one sentence that says whether they are modelled or measured."""
    return (
        f"{speed.kind.capitalize()} time on {speed.target}: {speed.candidate_us:.4g} µs, eager "
        f"PyTorch {speed.eager_us:.4g} µs, {speed.speedup:.2f} times as fast ({speed.launches} "
        f"launches, {speed.operations} torch operations, {speed.bytes / 1e6:.4g} MB; "
        f"{speed.probe})."
    )


def comparison_table(rows: Iterable[tuple[str, str, Verdict]]) -> Table:
    """Many candidates, one line each: name, task, and both opinions."""
    table = Table(show_edge=False, pad_edge=False)
    for heading in ("candidate", "task", "allclose", "contract", "rejected by"):
        table.add_column(heading, overflow="fold")
    for name, task, verdict in rows:
        contract = (
            Text("accepts", style="green") if verdict.passed else Text("rejects", style="red")
        )
        table.add_row(
            name, task, Text(*_opinion(verdict.allclose)), contract, ", ".join(verdict.rejected_by)
        )
    return table


def evaluation_view(summary: Mapping[str, Any]) -> RenderableType:
    """The numbers of `Evaluation.summary`: samples, both graders' opinions, rates."""
    facts = Table(show_edge=False, pad_edge=False, show_header=False)
    states = ", ".join(f"{count} {name}" for name, count in summary["status"].items())
    facts.add_row("samples", f"{summary['samples']} on {summary['tasks']} tasks: {states}")
    facts.add_row("allclose accepts", _percent(summary["allclose_rate"]))
    facts.add_row("contract accepts", _percent(summary["pass_rate"]))
    wrong = f"{_percent(summary['false_accept_rate'])} of what allclose accepts"
    named = ", ".join(f"{name} {count}" for name, count in summary["false_accept_gates"].items())
    facts.add_row("false accepts", f"{summary['false_accepts']}, {wrong} {named and f'({named})'}")
    for k, value in summary["pass_at"].items():
        facts.add_row(f"pass@{k}", _percent(value))
    kinds = ", ".join(summary["speed_kinds"])
    for p, value in summary["fast"].items():
        facts.add_row(f"fast_{p}", f"{_percent(value)} ({kinds})")
    rates = {**summary["gate_pass_rates"], **summary["op_class_pass_rates"]}
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("gate or class", no_wrap=True)
    table.add_column("passed", justify="right")
    for name, rate in rates.items():
        table.add_row(name, _percent(rate))
    return Group(facts, Text(), table)


def _percent(rate: float | None) -> str:
    return "not asked" if rate is None else f"{100 * rate:.1f} %"


def task_table(tasks: Sequence[Task]) -> Table:
    """Tasks, one line each."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("task", no_wrap=True, min_width=max(len(task.id) for task in tasks))
    for heading in ("level", "class", "grad", "dtypes", "shapes"):
        table.add_column(heading, overflow="fold")
    for task in tasks:
        table.add_row(
            task.id,
            str(task.level or ""),
            task.op_class,
            "yes" if task.gradients else "",
            " ".join(_SHORT.get(dtype, dtype) for dtype in task.dtypes),
            str(1 + len(task.family.variants()) + bool(task.family.long)),
        )
    return table


def broker_table(brokers: Sequence[Mapping[str, Any]]) -> Table:
    """Brokers, one line each."""
    table = Table(show_edge=False, pad_edge=False)
    headings = {"verified": "judged", "remembered": "cached"}
    names = ("pid", "device", "clients", "workers", "running", "waiting", *headings)
    for name in names:
        table.add_column(headings.get(name, name))
    for broker in brokers:
        table.add_row(*(str(broker[name]) for name in names))
    return table


def evidence_line(evidence: Evidence) -> str:
    """One failure on one line."""
    return describe(evidence)
