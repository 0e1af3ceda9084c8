"""`lethe controls --blackwell`: the native backward on the virtual GPU, and what it takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NoReturn

import typer
from rich.table import Table
from rich.text import Text

from .cell import HarnessError
from .command_line import FAILED, PASSED, UsageError, log, out
from .gates.battery import GATE_NAMES
from .gates.oracle import Oracle
from .gates.verdict import Finding, Status, Verdict
from .grader import cache_directory
from .kernels import cute_dsl
from .native_controls import (
    ASKED,
    SCHEDULES,
    MemberReport,
    StageReport,
    member_reports,
    stage_reports,
)
from .native_verdicts import member_verdicts, native_grader
from .vgpu.driver import VirtualDriver
from .vgpu.ptx.model import UnsupportedError
from .vgpu.session import LaunchError


def check_blackwell(device: str, only: str, *, as_json: bool) -> NoReturn:
    """Run the native backward of every member, print what was found, and leave.

    Args:
        device: As it was given; only the virtual GPU will do.
        only: What a member's task has to contain.
        as_json: Whether to print JSON.

    Raises:
        UsageError: The CuTe DSL is missing, another device was asked for, or no task fits.
        HarnessError: The virtual GPU broke.
        typer.Exit: Else always.
    """
    if not cute_dsl.is_installed():
        raise UsageError(cute_dsl.MISSING)
    if device not in ("auto", "vgpu"):
        raise UsageError(f"--blackwell executes on the virtual GPU (vgpu), not on {device}")
    driver = VirtualDriver(architecture=100)
    driver.activate()
    oracle = Oracle(cache_directory=cache_directory() / "oracle")
    try:
        members = list(member_reports(driver, oracle, only, lambda text: log.print(text)))
        kernels = list(stage_reports())
        with native_grader(kernels) as grader:
            verdicts = dict(member_verdicts(grader, only, lambda text: log.print(text)))
    except (UnsupportedError, LaunchError) as error:
        raise HarnessError(f"the virtual GPU broke: {error}") from error
    if not members:
        raise UsageError(f"no task of the native backward contains {only!r}")
    report = Report(kernels, members, verdicts)
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        _show(report)
    raise typer.Exit(PASSED if report.passed else FAILED)


@dataclass(frozen=True)
class Report:
    """Everything that was seen."""

    kernels: Sequence[StageReport]
    members: Sequence[MemberReport]
    verdicts: Mapping[str, Verdict]
    """By member."""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        faults = [fault for report in (*self.members, *self.kernels) for fault in report.faults]
        return not faults and all(verdict.passed for verdict in self.verdicts.values())

    def to_json(self) -> dict[str, object]:
        """A JSON-ready mapping."""
        return {
            "executed_on": "virtual GPU, code for sm_100a",
            "kernels": [{**asdict(kernel), "faults": kernel.faults} for kernel in self.kernels],
            "members": [asdict(member) for member in self.members],
            "asked": ASKED,
            "verdicts": {member: each.to_json() for member, each in self.verdicts.items()},
        }


def _show(report: Report) -> None:
    out.print(_kernel_table(report.kernels))
    out.print(_member_table(report.members))
    out.print(_verdict_table(report.verdicts))
    _show_faults(report.kernels, report.members)
    for member, verdict in report.verdicts.items():
        for finding in verdict.findings:
            if finding.status not in (Status.PASS, Status.NOT_APPLICABLE):
                text = f"{member}: {finding.gate}: {finding.reason}"
                out.print(text, style="bold red", markup=False)
    out.print("Executed on the virtual GPU; not on silicon. Asked of the gradients at full width:")
    for gate, text in ASKED.items():
        out.print(f"  {gate}: {text}", markup=False, highlight=False, soft_wrap=True)


def _show_faults(kernels: Sequence[StageReport], members: Sequence[MemberReport]) -> None:
    for report in (*kernels, *members):
        if isinstance(report, StageReport):
            name = f"{report.stage}, {report.made_for}"
        else:
            name = f"{report.member}, V = {report.value_dim}"
        for fault in report.faults:
            out.print(f"{name}: {fault}", style="bold red", markup=False)


def _kernel_table(kernels: Sequence[StageReport]) -> Table:
    title = "native kernels for sm_100a, shared memory in KiB"
    table = Table(title=title, show_edge=False, pad_edge=False)
    for heading in ("stage", "columns", "registers", "spills", "shared", "threads", "fits"):
        justify = "left" if heading in ("stage", "fits") else "right"
        table.add_column(heading, justify=justify, no_wrap=heading != "stage")
    for report in kernels:
        found = report.footprint
        table.add_row(
            f"{report.stage}: {report.made_for}",
            str(found.columns),
            str(found.registers),
            str(found.spilled_bytes),
            f"{report.shared_bytes / 1024:.0f}",
            str(report.threads),
            _mark(report.faults),
        )
    return table


def _member_table(members: Sequence[MemberReport]) -> Table:
    table = Table(title="gradients of members, float16, K = 128")
    for heading in ("member", "V", "gradients", "error / allowed", "of largest", "replays", ""):
        table.add_column(heading, justify="left" if heading in ("member", "") else "right")
    for report in members:
        table.add_row(
            report.member,
            str(report.value_dim),
            str(report.gradients),
            f"{report.worst_ratio:.2f}",
            f"{report.worst_relative_error:.1e}",
            f"{report.replays} of {len(SCHEDULES)}",
            _mark(report.faults),
        )
    return table


def _verdict_table(verdicts: Mapping[str, Verdict]) -> Table:
    table = Table(title="verdicts on tasks whose outputs are the gradients, float16")
    for heading in ("gate", *verdicts):
        table.add_column(heading)
    for position, gate in enumerate(GATE_NAMES):
        table.add_row(gate, *(_status(verdict.findings[position]) for verdict in verdicts.values()))
    return table


def _status(finding: Finding) -> str:
    if finding.status is Status.NOT_APPLICABLE:
        return "no question"
    ratio = finding.measured.get("worst_ratio")
    return finding.status.value if ratio is None else f"{finding.status.value} {ratio:.2f}"


def _mark(faults: tuple[str, ...]) -> Text:
    return Text("FAIL", style="bold red") if faults else Text("pass", style="green")
