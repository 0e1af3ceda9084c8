"""What the commands share: exit codes, consoles, common options and how they are checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from .cell import TARGETS
from .gates.verdict import Verdict
from .grader import DEFAULT_TARGETS, Grader
from .progress import shown
from .rendering import evaluation_view
from .service.options import GraderOptions
from .vgpu.timing import ARCHITECTURES, DEFAULT_ARCHITECTURE

PASSED, FAILED, USAGE, HARNESS = 0, 1, 2, 3
DEVICES = ("auto", "cuda", "vgpu", "interpreter")
ALL_TARGETS = ",".join(DEFAULT_TARGETS)

Device = Annotated[str, typer.Option(help="auto, cuda, vgpu or interpreter.")]
Targets = Annotated[str, typer.Option(help="Hardware every kernel has to fit, comma-separated.")]
Architecture = Annotated[
    int, typer.Option(help="Whose code the virtual GPU runs: 80 (A100), 90 (H100) or 100 (B200).")
]
Seed = Annotated[int, typer.Option(help="Moves every input's seed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]

out = Console()
log = Console(stderr=True)


class UsageError(Exception):
    """The command was given something it cannot use."""


def checked_device(device: str) -> str:
    """The device by the name that was given.

    Raises:
        UsageError: there is none of that name.
    """
    if device not in DEVICES:
        raise UsageError(f"no device named {device}; known: {', '.join(DEVICES)}")
    return device


def checked_targets(targets: str) -> tuple[str, ...]:
    """The comma-separated targets.

    Raises:
        UsageError: one of them is unknown, or there are none.
    """
    chosen = tuple(part for part in targets.split(",") if part)
    unknown = [target for target in chosen if target not in TARGETS]
    if unknown or not chosen:
        wrong = ", ".join(unknown) or "none"
        raise UsageError(f"no target named {wrong}; known: {', '.join(TARGETS)}")
    return chosen


def checked_architecture(architecture: int) -> int:
    """The architecture that was given.

    Raises:
        UsageError: the virtual GPU runs no code of that one.
    """
    if architecture not in ARCHITECTURES:
        known = ", ".join(map(str, ARCHITECTURES))
        raise UsageError(f"no architecture {architecture}; known: {known}")
    return architecture


def recorded_architecture(verdict: Verdict) -> int:
    """The architecture that a verdict was made on; the default if that was a GPU's own."""
    number = verdict.environment.get("architecture", "").removeprefix("sm_")
    return int(number) if number.isdigit() else DEFAULT_ARCHITECTURE


def grader_options(device: str, targets: str = ALL_TARGETS, seed: int = 0) -> GraderOptions:
    """What verdicts are asked for.

    Raises:
        UsageError: an unknown device or target.
    """
    return GraderOptions(device=checked_device(device), targets=checked_targets(targets), seed=seed)


def conclude(summary: dict[str, Any], *, as_json: bool) -> NoReturn:
    """Print an evaluation's summary and leave with its exit code.

    Raises:
        typer.Exit: always; with 3 if some samples could not be judged, else with 0.
    """
    if as_json:
        print(json.dumps(summary, indent=2, allow_nan=False))
    else:
        out.print(evaluation_view(summary))
    raise typer.Exit(HARNESS if summary["infra"] else PASSED)


@contextmanager
def open_grader(
    device: str, targets: str, seed: int, architecture: int = DEFAULT_ARCHITECTURE
) -> Iterator[Grader]:
    """A grader that shows how far a verdict has come.

    Raises:
        UsageError: an unknown device, target or architecture.
    """
    device, chosen = checked_device(device), checked_targets(targets)
    checked_architecture(architecture)
    with (
        shown(log, "starting") as report,
        Grader(
            device=device,
            targets=chosen,
            seed=seed,
            architecture=architecture,
            progress=report,
        ) as grader,
    ):
        yield grader
