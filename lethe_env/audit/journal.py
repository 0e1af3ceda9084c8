"""The journal of an audit: one JSON object per line, appended as rows finish.

An interrupted run leaves at most one broken line, its last. A reader skips what it cannot read and
says so; nothing in the file is ever rewritten.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from .row import Outcome, Recorded, Stage

SCHEMA_VERSION = 1
"""Raised whenever a field of the JSON form changes its meaning or goes away."""
FILE_NAME = "rows.jsonl"
_MAPPINGS = ("gates", "reasons", "evidence", "loosening", "channels")


@dataclass(frozen=True, slots=True)
class Unread:
    """One line of a journal that could not be used."""

    line: int
    """Counted from one."""
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}"


def read_outcomes(path: Path, complain: Callable[[Unread], None]) -> Iterator[Outcome]:
    """Outcomes in the order in which they were written, each id once.

    Args:
        path: the journal.
        complain: called for each line that is skipped: broken, cut off, of another schema, or
            with an id that an earlier line has.

    Raises:
        OSError: the file cannot be read.
    """
    seen: set[str] = set()
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                outcome = from_line(line)
            except ValueError as error:
                cut = "" if line.endswith(b"\n") else "cut off, as an interrupted run leaves it: "
                complain(Unread(number, f"{cut}{error}"))
                continue
            if outcome.id in seen:
                complain(Unread(number, f"the id {outcome.id!r} was there before"))
                continue
            seen.add(outcome.id)
            yield outcome


def open_journal(path: Path) -> BinaryIO:
    """Open a journal for appending.

    A line that an interruption cut off is ended first, so that the next one is whole.

    Raises:
        OSError: the file cannot be written.
    """
    journal = path.open("ab+")
    if journal.tell():
        journal.seek(-1, 2)
        if journal.read(1) != b"\n":
            journal.write(b"\n")
    return journal


def to_line(outcome: Outcome) -> bytes:
    """The line of one outcome, strict JSON with its line end."""
    data = {"schema_version": SCHEMA_VERSION, **_plain(asdict(outcome))}
    return json.dumps(data, allow_nan=False).encode() + b"\n"


def from_line(line: bytes) -> Outcome:
    """The outcome of one line.

    Raises:
        ValueError: the line is no JSON, not an outcome, or of another schema version.
    """
    try:
        data = json.loads(line)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    version = data.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise ValueError(f"schema {version} cannot be read; this is {SCHEMA_VERSION}")
    try:
        return Outcome(**_restored(data))
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"not an outcome ({error})") from error


def _restored(data: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(data.get("id"), str) or "stage" not in data:
        raise ValueError("an outcome has an id and a stage")
    for name in _MAPPINGS:
        if not isinstance(data.get(name, {}), dict):
            raise ValueError(f"{name} is not an object")
    recorded = data.get("recorded_verdict")
    return {
        **data,
        "stage": Stage(data["stage"]),
        "recorded_verdict": None if recorded is None else Recorded(recorded),
        "native_shapes": tuple(tuple(shape) for shape in data.get("native_shapes", ())),
        "loosening": {gate: float(factor) for gate, factor in data.get("loosening", {}).items()},
    }


def _plain(value: Any) -> Any:
    """JSON without NaN literals: they become the texts that `float` reads back."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
