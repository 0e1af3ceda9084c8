"""`lethe`: grade a candidate, look at tasks, reproduce a failure, check the checker."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from .agents.command import policy
from .agents.compare.command import compare
from .audit.command import app as audit_app
from .cell import HarnessError
from .command_line import (
    ALL_TARGETS,
    FAILED,
    HARNESS,
    PASSED,
    USAGE,
    Architecture,
    AsJson,
    Device,
    Seed,
    Targets,
    UsageError,
    log,
    open_grader,
    out,
    recorded_architecture,
)
from .evaluate_command import evaluate
from .gates.comparison import outcome_of
from .gates.verdict import Verdict
from .kernelbench.command import kernelbench_app
from .kernels.controls import HONEST, RED_TEAM, Control
from .lint_command import lint_tasks
from .native_command import check_blackwell
from .rendering import broker_table, comparison_table, evidence_line, task_table, verdict_view
from .service.client import brokers, stop_brokers
from .tasks.catalog import find_task, load_tasks, suite
from .tasks.model import Task, TaskError
from .tasks.probe import Probe
from .vgpu.timing import DEFAULT_ARCHITECTURE

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="A contract-grade verifier for GPU kernels. Exit codes: 0 pass, 1 fail, 2 usage, "
    "3 the harness broke.",
)
tasks_app = typer.Typer(no_args_is_help=True, help="Look at tasks.")
app.add_typer(tasks_app, name="tasks")
app.add_typer(audit_app, name="audit")
tasks_app.command("lint")(lint_tasks)
broker_app = typer.Typer(no_args_is_help=True, help="See or end the processes that serve verdicts.")
app.add_typer(broker_app, name="broker")
app.add_typer(kernelbench_app, name="kernelbench")
app.command()(evaluate)
app.command()(policy)
app.command()(compare)


def main() -> None:
    """Entry point: turns known errors into one sentence and the right exit code."""
    try:
        app()
    except TaskError as error:
        log.print(f"task: {error}", style="red", markup=False)
        sys.exit(USAGE)
    except UsageError as error:
        log.print(f"usage: {error}", style="red", markup=False)
        sys.exit(USAGE)
    except HarnessError as error:
        log.print(f"harness: {error}", style="magenta", markup=False)
        sys.exit(HARNESS)


@app.command()
def grade(
    task: Annotated[str, typer.Argument(help="A suite id, or a KernelBench-convention file.")],
    file: Annotated[Path, typer.Argument(help="The candidate: a file that defines ModelNew.")],
    device: Device = "auto",
    targets: Targets = ALL_TARGETS,
    architecture: Architecture = DEFAULT_ARCHITECTURE,
    seed: Seed = 0,
    as_json: AsJson = False,
    output: Annotated[Path | None, typer.Option(help="Also write the verdict here.")] = None,
) -> None:
    """Judge one candidate with the twelve gates."""
    source = _read(file)
    with open_grader(device, targets, seed, architecture) as grader:
        verdict = grader.grade(task, source)
    if output is not None:
        output.write_text(verdict.dumps())
    if as_json:
        print(verdict.dumps())
    else:
        out.print(verdict_view(verdict))
    raise typer.Exit(_exit_code(verdict))


@app.command()
def reproduce(
    verdict_file: Annotated[Path, typer.Argument(help="JSON written by `lethe grade --output`.")],
    gate: Annotated[str, typer.Option(help="Only this gate's failures.")] = "",
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Make the failing calls of a verdict again and compare. Exits with 1 if they still fail."""
    verdict = _load_verdict(verdict_file)
    task = Task.from_json(verdict.task)
    failing = [
        (finding.gate, evidence)
        for finding in verdict.findings
        if finding.gate == gate or not gate
        for evidence in finding.evidence
        if evidence.probe
    ]
    if not failing:
        log.print("This verdict names no failing call." if not gate else f"None for {gate}.")
        raise typer.Exit(PASSED)
    rows = []
    targets = verdict.environment.get("targets", ALL_TARGETS)
    with open_grader(device, targets, 0, recorded_architecture(verdict)) as grader:
        for name, evidence in failing:
            probe = Probe(**evidence.probe)
            truth, seen = grader.ask(task, verdict.source, probe)
            outcome = outcome_of(
                probe, truth, seen, gradients=probe.gradients, subnormal=name == "EXC-02"
            )
            again = outcome.evidence
            rows.append(
                {
                    "gate": name,
                    "was": evidence_line(evidence),
                    "now": evidence_line(again) if again is not None else "within the bound",
                    "fails": again is not None,
                }
            )
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            text = f"{row['gate']}\n  was {row['was']}\n  now {row['now']}"
            out.print(text, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(FAILED if any(row["fails"] for row in rows) else PASSED)


@app.command()
def demo(device: Device = "auto") -> None:
    """Grade three kernels for one task: an honest one and two that an allclose grader accepts."""
    stories = {
        "softmax": "An honest kernel.",
        "nan_swallow_softmax": "The same kernel, but NaN is taken for zero.",
        "low_precision_accumulator": "The same kernel, but the normaliser is added up in float16.",
    }
    known = {control.name: control for control in (*HONEST, *RED_TEAM)}
    rows = []
    with open_grader(device, ALL_TARGETS, 0) as grader:
        for name, story in stories.items():
            control = known[name]
            verdict = grader.grade(control.task, control.source())
            rows.append((name, control.task, verdict))
            out.rule(f"{control.task}: {name}")
            out.print(story)
            out.print(verdict_view(verdict))
            out.print()
    out.rule("side by side")
    out.print(comparison_table(rows))
    out.print()
    example = Path(os.path.relpath(known["softmax"].path.resolve()))
    out.print("Grade your own file (it defines ModelNew; this one is honest):", style="bold")
    out.print(f"    {_command()} grade softmax/softmax {example}", highlight=False, soft_wrap=True)


def _command() -> str:
    """How the reader reaches this program: by name if it is on the path, else by its file."""
    found = shutil.which("lethe")
    here = Path(sys.argv[0])
    if found and Path(found).resolve() == here.resolve():
        return "lethe"
    return os.path.relpath(here)


@app.command("control", hidden=True)
@app.command()
def controls(
    device: Device = "auto",
    only: Annotated[str, typer.Option(help="Only names that contain this.")] = "",
    experts: Annotated[bool, typer.Option("--experts", help="Only the library's kernels.")] = False,
    blackwell: Annotated[
        bool,
        typer.Option("--blackwell", help="Instead, the native gated-delta backward for sm_100a."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the checker: every honest kernel must pass, every trick must be rejected."""
    if blackwell:
        check_blackwell(device, only, as_json=as_json)
    chosen = [
        control
        for control in (*HONEST, *RED_TEAM)
        if only in control.name
        and (control.library or not experts)
        and not (control.needs_gpu and device == "interpreter")
    ]
    if not chosen:
        raise UsageError(f"no control's name contains {only!r}")
    judged: list[tuple[Control, Verdict]] = []
    with open_grader(device, ALL_TARGETS, 0) as grader:
        for control in chosen:
            log.print(f"{control.name} on {control.task}", style="dim")
            verdict = grader.grade(control.task, control.source())
            judged.append((control, verdict))
            log.print(f"  {_outcome(verdict)}", style="dim")
    surprises = [_surprise(control, verdict) for control, verdict in judged]
    if as_json:
        print(json.dumps([_control_row(c, v) for c, v in judged], indent=2))
    else:
        out.print(comparison_table((c.name, c.task, v) for c, v in judged))
        honest = [v for c, v in judged if not c.caught_by]
        wrong = [(c, v) for c, v in judged if c.caught_by]
        out.print(
            f"honest kernels accepted: {sum(v.passed for v in honest)} of {len(honest)}; "
            f"tricks rejected by the gate they name: "
            f"{sum(not _surprise(c, v) for c, v in wrong)} of {len(wrong)}"
        )
        for surprise in filter(None, surprises):
            out.print(surprise, style="bold red", markup=False)
    raise typer.Exit(FAILED if any(surprises) else PASSED)


@tasks_app.command("list")
def list_tasks(
    source: Annotated[
        str,
        typer.Argument(help="A KernelBench folder, a .jsonl or .parquet table; else the suite."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List tasks."""
    tasks = list(load_tasks(source)) if source else list(suite().values())
    if as_json:
        print(json.dumps([task.to_json() for task in tasks], indent=2))
    elif tasks:
        out.print(task_table(tasks))


@tasks_app.command("show")
def show_task(
    task: Annotated[str, typer.Argument(help="A suite id or a file.")], as_json: AsJson = False
) -> None:
    """Show one task: its reference and its shape family."""
    found = find_task(task)
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
        return
    out.print(task_table([found]))
    out.print(f"base {dict(found.family.base)}", highlight=False)
    out.print(f"long {dict(found.family.long)}", highlight=False)
    for name, values in found.family.vary.items():
        out.print(f"vary {name}: {', '.join(map(str, values))}", highlight=False)
    for gate, reason in found.waived.items():
        out.print(f"waived {gate}: {reason}", highlight=False)
    out.print()
    out.print(found.source, markup=False, highlight=False)


@broker_app.command("status")
def broker_status(as_json: AsJson = False) -> None:
    """What your brokers on this machine are doing."""
    found = brokers()
    if as_json:
        print(json.dumps(found, indent=2))
    elif found:
        out.print(broker_table(found))
    else:
        log.print("No broker is running. One starts when a verdict is asked of it.")


@broker_app.command("stop")
def broker_stop() -> None:
    """End your brokers on this machine. What they were asked meanwhile is asked again."""
    log.print(f"{stop_brokers()} ended.")


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the candidate: {error}") from error


def _load_verdict(file: Path) -> Verdict:
    try:
        return Verdict.from_json(json.loads(file.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file} is not a verdict: {error}") from error


def _exit_code(verdict: Verdict) -> int:
    if verdict.errored:
        return HARNESS
    return PASSED if verdict.passed else FAILED


def _outcome(verdict: Verdict) -> str:
    if verdict.passed:
        return "accepted"
    rejecting = ", ".join(verdict.rejected_by)
    return f"rejected by {rejecting}" if rejecting else "not judged"


def _surprise(control: Control, verdict: Verdict) -> str:
    seen = {*verdict.rejected_by, *verdict.channels}
    missing = [name for name in control.caught_by if name not in seen]
    if missing:
        return f"{control.name}: {', '.join(missing)} did not reject it"
    if not control.caught_by and not verdict.passed:
        return f"{control.name}: honest, but rejected by {', '.join(verdict.rejected_by)}"
    return ""


def _control_row(control: Control, verdict: Verdict) -> dict[str, object]:
    return {
        "name": control.name,
        "task": control.task,
        "honest": not control.caught_by,
        "caught_by": list(control.caught_by),
        "rejected_by": list(verdict.rejected_by),
        "channels": dict(verdict.channels),
        "kernel": verdict.kernel,
        "allclose": verdict.allclose.status.value if verdict.allclose else None,
        "passed": verdict.passed,
        "as_expected": not _surprise(control, verdict),
    }
