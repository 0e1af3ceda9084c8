"""Records of a table, one after the other: JSONL, Parquet, or a Hugging Face dataset.

Never more than a batch is held. A line that cannot be read is a record with a problem, and the
ones after it are read all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ..tasks.table import is_dataset_name

LINE_BYTES = 64 << 20
"""A longer line is no record of two source texts."""
BATCH_ROWS = 64
"""Rows of a Parquet file that are held at once; some archives have megabytes in each."""
_SAVED = ("dataset_info.json", "dataset_dict.json", "state.json")


class CorpusError(Exception):
    """The corpus as a whole cannot be read, or is not what the preset expects."""


@dataclass(frozen=True, slots=True)
class Record:
    """One row of a table, as it came."""

    number: int
    """Counted from one over the whole table."""
    origin: str
    values: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    """Why there are no values."""


def read_records(table: str) -> Iterator[Record]:
    """Every record of a table, in its order.

    Args:
        table: path of a `.jsonl` or `.parquet` file, of a folder that `datasets` saved, or the
            name of a Hugging Face dataset as `owner/name` or `owner/name:split`.

    Raises:
        CorpusError: there is no such table, or it cannot be read on.
    """
    path = Path(table)
    if path.suffix == ".jsonl" or (path.suffix == ".json" and path.is_file()):
        return _jsonl(_existing(path))
    if path.suffix == ".parquet":
        return _parquet(_existing(path))
    if path.is_dir() and not any((path / name).exists() for name in _SAVED):
        raise CorpusError(f"{path} is a folder, but no dataset that `datasets` saved")
    if not (path.is_dir() or is_dataset_name(table)):
        raise CorpusError(f"no table at {table}: neither a file nor the owner/name of a dataset")
    return _dataset(table)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise CorpusError(f"no table at {path}")
    return path


def _jsonl(path: Path) -> Iterator[Record]:
    with path.open("rb") as lines:
        number = 0
        while line := lines.readline(LINE_BYTES):
            number += 1
            origin = f"{path.name} line {number}"
            if len(line) == LINE_BYTES and not line.endswith(b"\n"):
                _skip_line(lines)
                yield Record(number, origin, problem=f"longer than {LINE_BYTES} bytes")
            elif line.strip():
                yield _parsed(number, origin, line)


def _skip_line(lines: BinaryIO) -> None:
    while (rest := lines.readline(LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def _parsed(number: int, origin: str, line: bytes) -> Record:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Record(number, origin, problem=f"not JSON: {error}")
    if not isinstance(values, dict):
        return Record(number, origin, problem="not a JSON object")
    return Record(number, origin, values)


def _parquet(path: Path) -> Iterator[Record]:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                for values in batch.to_pylist():
                    number += 1
                    yield Record(number, f"{path.name} row {number}", values)
    except (pyarrow.ArrowException, OSError) as error:
        raise CorpusError(f"{path} cannot be read beyond row {number}: {error}") from error


def _dataset(name: str) -> Iterator[Record]:
    try:
        import datasets
    except ImportError as error:
        raise CorpusError(
            f"{name} is no .jsonl or .parquet file; reading it as a Hugging Face dataset needs "
            "`pip install datasets`"
        ) from error
    number = 0
    try:
        if Path(name).is_dir():
            loaded = datasets.load_from_disk(name)
        else:
            owner, _, split = name.partition(":")
            loaded = datasets.load_dataset(owner, split=split or None, streaming=True)
        parts = loaded.items() if isinstance(loaded, dict) else (("", loaded),)
        for part, rows in parts:
            for values in rows:
                number += 1
                yield Record(number, f"{name} {part} row {number}".replace("  ", " "), values)
    except (OSError, ValueError) as error:
        raise CorpusError(f"{name} cannot be read beyond row {number}: {error}") from error
