"""Corpora: where candidates come from, each with its reference and what is recorded of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..cell.policy import SOURCE_CHARACTERS
from ..reward.completion import extract_source
from .records import CorpusError, Record, read_records
from .row import Recorded, Row

REFERENCE_FILE = "reference.py"
"""Name of the reference in each problem's folder of a plain folder corpus."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """A place in a corpus that holds no candidate to judge."""

    id: str
    reason: str
    origin: str = ""


Item = Row | Unusable


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of a table's columns; a name that is empty stands for a column that is not there."""

    reference: str = "reference"
    candidate: str = "candidate"
    id: str = "id"
    """Without it, or where it holds nothing, rows are numbered."""
    verdict: str = "verdict"
    """Truth value, number, or one of the words in `ACCEPTING` and `REJECTING`."""
    speedup: str = "speedup"
    message: str = "message"
    """The source system's own words on a rejection."""
    trajectory: bool = False
    """Whether the candidate column holds what a model wrote, text or chat, to be extracted from."""
    speedup_accepts: bool = False
    """Whether a speed-up above zero is the record of an acceptance, and any other of a
    rejection."""

    def renamed(self, names: Mapping[str, str]) -> Columns:
        """The same with some columns called otherwise.

        Raises:
            CorpusError: there is no column of that role.
        """
        roles = [field.name for field in fields(self) if field.type == "str"]
        unknown = sorted(set(names) - set(roles))
        if unknown:
            raise CorpusError(f"no column is a {unknown[0]!r}; there are {', '.join(roles)}")
        renamed: dict[str, Any] = dict(names)
        return replace(self, **renamed)


ACCEPTING = ("accepted", "accept", "true", "yes", "pass", "passed", "correct", "1")
REJECTING = ("rejected", "reject", "false", "no", "fail", "failed", "incorrect", "wrong", "0")


def read_table(table: str, columns: Columns) -> Iterator[Item]:
    """One item for each record of a table; see `records.read_records` for what a table may be.

    Raises:
        CorpusError: there is no such table, or not one of its first records has the columns.
    """
    good = 0
    for record in read_records(table):
        item = row_of(record, columns)
        if isinstance(item, Row):
            good += 1
        elif good == 0 and record.number == 1 and not record.problem:
            _check_columns(record, columns, table)
        yield item


def row_of(record: Record, columns: Columns) -> Item:
    """A record as a row, or what it lacks."""
    identity = str(record.values.get(columns.id) or f"row{record.number}")
    if record.problem:
        return Unusable(identity, record.problem, record.origin)
    reference = record.values.get(columns.reference)
    candidate = record.values.get(columns.candidate)
    reason = ""
    if columns.trajectory and candidate is not None:
        found = extract_source(_chat(candidate))
        candidate, reason = found.source, found.reason
    if not isinstance(reference, str) or not reference.strip():
        return Unusable(identity, _missing(columns.reference), record.origin)
    if not isinstance(candidate, str) or not candidate.strip():
        return Unusable(identity, _missing(columns.candidate, reason), record.origin)
    speedup = _number(record.values.get(columns.speedup))
    return Row(
        id=identity,
        reference=reference,
        candidate=candidate,
        recorded_verdict=_recorded(record.values, columns, speedup),
        recorded_reason=str(record.values.get(columns.message) or ""),
        recorded_speedup=speedup,
        origin=record.origin,
    )


def read_folder(folder: Path) -> Iterator[Item]:
    """`PROBLEM/reference.py` with candidates beside it, `PROBLEM/*.py`, in the order of names.

    Raises:
        CorpusError: no problem's folder is there.
    """
    references = sorted(folder.glob(f"**/{REFERENCE_FILE}"))
    if not references:
        raise CorpusError(
            f"{folder} holds no PROBLEM/{REFERENCE_FILE}; for other layouts name a --preset"
        )
    for path in references:
        reference = read_source(path)
        for candidate in sorted(path.parent.glob("*.py")):
            if candidate != path:
                identity = str(candidate.relative_to(folder).with_suffix(""))
                yield row_from_files(identity, reference, candidate)


def row_from_files(
    identity: str, reference: str | CorpusError, candidate: Path, **recorded: Any
) -> Item:
    """A row whose candidate lies in a file of its own.

    Args:
        identity: of the row.
        reference: its text, or why it cannot be read.
        candidate: the file.
        recorded: the fields of `Row` that say what the corpus records.
    """
    source = read_source(candidate)
    if isinstance(reference, CorpusError) or isinstance(source, CorpusError):
        problem = reference if isinstance(reference, CorpusError) else source
        return Unusable(identity, str(problem), str(candidate))
    return Row(
        id=identity, reference=reference, candidate=source, origin=str(candidate), **recorded
    )


def read_source(path: Path) -> str | CorpusError:
    """A file's text, no more of it than it takes to refuse it, or why it cannot be read."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(SOURCE_CHARACTERS + 1)
    except FileNotFoundError:
        return CorpusError(f"{path.name} is missing")
    except (OSError, UnicodeDecodeError) as error:
        return CorpusError(f"{path.name} cannot be read: {error}")


def _missing(name: str, reason: str = "") -> str:
    return f"the field {name!r} holds no source{reason and f': {reason}'}"


def _check_columns(record: Record, columns: Columns, table: str) -> None:
    """A table whose first record lacks a column altogether is not what was meant.

    Raises:
        CorpusError: it lacks one.
    """
    for role in ("reference", "candidate"):
        name = getattr(columns, role)
        if name not in record.values:
            known = ", ".join(map(repr, record.values))
            raise CorpusError(
                f"{table} has no column {name!r}; it has {known}. "
                f"Name the right one with --column {role}=NAME"
            )


def _chat(value: Any) -> Any:
    """A chat that was stored as JSON text, or the value as it is."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _recorded(
    values: Mapping[str, Any], columns: Columns, speedup: float | None
) -> Recorded | None:
    if columns.speedup_accepts:
        return Recorded.ACCEPTED if speedup is not None and speedup > 0 else Recorded.REJECTED
    word = str(values.get(columns.verdict)).strip().lower().removesuffix(".0")
    if word in ACCEPTING:
        return Recorded.ACCEPTED
    return Recorded.REJECTED if word in REJECTING else None
