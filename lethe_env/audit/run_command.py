"""`lethe audit run`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ..command_line import (
    ALL_TARGETS,
    HARNESS,
    PASSED,
    Device,
    Targets,
    UsageError,
    grader_options,
    log,
)
from ..progress import shown
from ..service.options import GraderOptions
from .bench import Bench, LocalBench
from .journal import Unread
from .ledger import Ledger, LedgerError
from .presets import PRESETS, open_corpus
from .records import CorpusError
from .row import Outcome, Stage
from .run import Plan, Report, Stop, stopped_by_signals
from .run import run as run_audit

INTERRUPTED = 130
"""Exit code of a run that was stopped before its end, as shells have it for Ctrl-C."""
BENCHES = ("pool", "ray")


def run(
    corpus: Annotated[
        str, typer.Argument(help="A folder, a .jsonl or .parquet file, or a Hugging Face dataset.")
    ],
    out_folder: Annotated[
        Path, typer.Option("--out", help="Outcomes go here; an earlier run here is continued.")
    ],
    preset: Annotated[str, typer.Option(help=f"Layout: {', '.join(PRESETS)}.")] = "",
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="ROLE=NAME of a table's column: reference, candidate, id, verdict, speedup, "
            "message; repeat."
        ),
    ] = None,
    references: Annotated[
        Path | None, typer.Option(help="KernelBench's folder with levelN, if the corpus has none.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Only so many rows, drawn at random.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
    accepted_only: Annotated[
        bool, typer.Option("--accepted-only", help="Leave out what the source system rejected.")
    ] = False,
    on: Annotated[
        str, typer.Option(help="Where to judge: pool (here) or ray (a cluster).")
    ] = "pool",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Rows judged at once; by default one for each core.")
    ] = None,
    device: Device = "auto",
    targets: Targets = ALL_TARGETS,
) -> None:
    """Judge the rows of a corpus, and keep what becomes of each.

    Exits with 0 if every row is done, with 3 if the harness broke on some or on the run itself,
    with 130 if it was stopped. The same command goes on where it stopped.
    """
    options = grader_options(device, targets)
    names = _column_names(column or [])
    plan = Plan(sample=sample, seed=seed, accepted_only=accepted_only)
    about = {
        "corpus": str(Path(corpus).resolve()) if Path(corpus).exists() else corpus,
        "preset": preset,
        "columns": names,
        "accepted_only": accepted_only,
        "seed": seed if sample is not None else None,
        "device": device,
        "targets": list(options.targets),
    }
    stop = Stop()
    try:
        with ExitStack() as stack:
            items = plan.items(open_corpus(corpus, preset, names, references))
            ledger = stack.enter_context(Ledger(out_folder, about, _complain))
            stack.enter_context(stopped_by_signals(stop, _say))
            report = stack.enter_context(_progress(ledger, sample))
            bench = _bench(on, options, workers)
            stack.callback(bench.close)
            finished = run_audit(items, bench, ledger, plan, stop, report)
    except (CorpusError, LedgerError) as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        _say(
            f"{out_folder} cannot be written: {error.strerror or error}. What was judged so far is "
            "safe; make room and run the same command again."
        )
        raise typer.Exit(HARNESS) from error
    _say(_summary(ledger))
    if not finished:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(HARNESS if ledger.counts[Stage.ERROR] else PASSED)


def _bench(on: str, options: GraderOptions, workers: int | None) -> Bench:
    if on == "pool":
        return LocalBench(options, workers)
    if on != "ray":
        raise UsageError(f"nothing is called {on}; --on takes {' or '.join(BENCHES)}")
    try:
        from .ray import RayBench
    except ImportError as error:
        raise UsageError("--on ray needs `pip install 'lethe_env[dist]'`") from error
    return RayBench(options, workers)


def _column_names(given: list[str]) -> dict[str, str]:
    names = {}
    for text in given:
        role, equals, name = text.partition("=")
        if not equals:
            raise UsageError(f"--column takes ROLE=NAME, not {text!r}")
        names[role] = name
    return names


def _say(text: str) -> None:
    log.print(text, markup=False, highlight=False, soft_wrap=True)


def _complain(unread: Unread) -> None:
    _say(f"rows.jsonl, {unread}; the row is judged again")


def _summary(ledger: Ledger) -> str:
    return f"{ledger.counts.total()} rows in {ledger.folder}: {_counted(ledger)}"


def _counted(ledger: Ledger) -> str:
    counted = ", ".join(f"{count} {stage}" for stage, count in sorted(ledger.counts.items()))
    return counted or "nothing yet"


@contextmanager
def _progress(ledger: Ledger, total: int | None) -> Iterator[Report]:
    with shown(log, "audit") as show:

        def report(outcome: Outcome) -> None:
            if outcome.stage is Stage.SKIPPED:
                _say(f"{outcome.id} is skipped: {outcome.reason}")
            show(f"{_counted(ledger)}, last {outcome.id[:40]}", ledger.counts.total(), total)

        yield report
