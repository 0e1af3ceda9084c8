"""`lethe audit report` and `lethe audit published`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..cell import HarnessError
from ..command_line import AsJson, UsageError, log, out
from .journal import FILE_NAME, Unread, open_journal, to_line
from .published import read_published
from .sample import SAMPLE_SIZE
from .summary import RUN_FILE, Summary, summarise

SampleSeed = Annotated[
    int, typer.Option("--sample-seed", help="Chooses the rows that are shown to a person.")
]
SampleSize = Annotated[
    int, typer.Option("--sample-size", min=0, help="How many of them the report shows.")
]
_COMPLAINTS_SHOWN = 5


def report(
    folder: Annotated[Path, typer.Argument(help="What `lethe audit run --out` wrote.")],
    sample_seed: SampleSeed = 0,
    sample_size: SampleSize = SAMPLE_SIZE,
    as_json: AsJson = False,
) -> None:
    """Write the report of an audit from its rows; the run may still be going on."""
    if not (folder / FILE_NAME).is_file():
        raise UsageError(
            f"there is no {FILE_NAME} in {folder}; `lethe audit run CORPUS --out DIR` writes one"
        )
    summary = render(folder, sample_seed, sample_size)
    if as_json:
        print(json.dumps(summary.to_json(), indent=2, allow_nan=False))
    else:
        _say(summary, folder)


def published(
    file: Annotated[Path, typer.Argument(help="The paper's published rows, .jsonl or .jsonl.gz.")],
    out_folder: Annotated[Path, typer.Option("--out", help="A folder for rows and report.")],
    sample_seed: SampleSeed = 0,
    sample_size: SampleSize = SAMPLE_SIZE,
) -> None:
    """Report on verdicts that were published without their sources."""
    if (out_folder / FILE_NAME).exists():
        raise UsageError(f"{out_folder} holds an audit already; name another folder")
    problems: list[Unread] = []
    try:
        out_folder.mkdir(parents=True, exist_ok=True)
        with open_journal(out_folder / FILE_NAME) as journal:
            for outcome in read_published(file, problems.append):
                journal.write(to_line(outcome))
        run = {"corpus": file.name, "verdicts": "published with the corpus, not made here"}
        (out_folder / RUN_FILE).write_text(json.dumps(run, indent=2) + "\n")
    except OSError as error:
        raise UsageError(f"cannot turn {file} into rows in {out_folder}: {error}") from error
    _complain(file, problems)
    _say(render(out_folder, sample_seed, sample_size), out_folder)


def render(folder: Path, sample_seed: int = 0, sample_size: int = SAMPLE_SIZE) -> Summary:
    """Compute and write the report of a folder.

    Raises:
        UsageError: the `report` extra is not installed.
        HarnessError: the rows cannot be read, or the report cannot be written.
    """
    try:
        from .report import write_report

        summary = summarise(folder, seed=sample_seed, sample_size=sample_size)
        write_report(summary, folder)
    except ImportError as error:
        raise UsageError(
            f"the report needs {error.name}: pip install 'lethe_env[report]'"
        ) from error
    except OSError as error:
        raise HarnessError(f"the report of {folder} cannot be written: {error}") from error
    _complain(folder / FILE_NAME, summary.unread)
    return summary


def _complain(file: Path, problems: tuple[Unread, ...] | list[Unread]) -> None:
    for problem in problems[:_COMPLAINTS_SHOWN]:
        log.print(f"{file.name}, {problem}", style="yellow", markup=False, highlight=False)
    if problems:
        log.print(f"{len(problems)} lines of {file} were skipped.", markup=False, highlight=False)


def _say(summary: Summary, folder: Path) -> None:
    from .report import interval, percent

    headline = summary.headline
    lines = [f"{summary.waterfall[0].rows:,} rows, of which {summary.judged:,} count."]
    for name, rate in (("any violation", headline.violation), ("floor", headline.floor)):
        lines.append(f"{name}: {rate.hits:,} ({percent(rate)}, 95 % interval {interval(rate)})")
    lines.append(f"The report: {folder / 'report.html'}")
    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
