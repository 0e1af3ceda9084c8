"""`lethe audit synthesize` and `lethe audit verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..command_line import FAILED, UsageError, log, out
from .journal import FILE_NAME, Unread, read_outcomes
from .synthetic import ROWS, write_synthetic
from .verification import contradictions, read_truths


def synthesize(
    out_file: Annotated[Path, typer.Option("--out", help="The .jsonl file to write.")],
    rows: Annotated[int, typer.Option(min=20, help="How many.")] = ROWS,
) -> None:
    """Write a corpus whose truth is known, to check an audit with."""
    try:
        known = write_synthetic(out_file, rows)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write {out_file}: {error}") from error
    right = sum(bool(row.passed) for row in known)
    _say(f"{len(known)} rows in {out_file}, of which the contract accepts {right}")


def verify(
    corpus: Annotated[Path, typer.Argument(help="What `lethe audit synthesize` wrote.")],
    folder: Annotated[Path, typer.Argument(help="What `lethe audit run --out` made of it.")],
) -> None:
    """Compare an audit with the known truth of its corpus.

    Exits with 0 if every row came out as known, else with 1, and names those that did not.
    """

    def complain(unread: Unread) -> None:
        _say(f"rows.jsonl, {unread}")

    for path, maker in ((corpus, "synthesize"), (folder / FILE_NAME, "run")):
        if not path.is_file():
            raise UsageError(f"there is no {path}; `lethe audit {maker} --out` writes it")
    try:
        truths = read_truths(corpus)
        outcomes = list(read_outcomes(folder / FILE_NAME, complain))
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    found = list(contradictions(truths, outcomes))
    for sentence in found:
        _say(sentence, out)
    if found:
        _say(f"{len(found)} of {len(truths)} rows are not as known")
        raise typer.Exit(FAILED)
    _say(f"all {len(truths)} rows came out as known", out)


def _say(text: str, where: Console = log) -> None:
    where.print(text, markup=False, highlight=False, soft_wrap=True)
