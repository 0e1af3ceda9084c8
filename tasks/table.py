"""Tasks from a table with a source column: JSONL, Parquet, or a Hugging Face dataset."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .kernelbench_folder import Loader, foreign_task
from .model import Task, TaskError


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of a table's columns; the defaults are those of `ScalingIntelligence/KernelBench`."""

    source: str = "code"
    name: str = "name"
    level: str = "level"


def load_table(table: str, columns: Columns = Columns()) -> Iterator[Task]:
    """One task per row.

    Args:
        table: the path of a `.jsonl` or `.parquet` file, or the name of a Hugging Face dataset
            as `owner/name` or `owner/name:split`, which needs the `datasets` package.
        columns: names of the columns; only the source column has to exist.

    Raises:
        TaskError: no such table, no such column, or a reference that fails.
    """
    for _, _, load in table_loaders(table, columns):
        yield load()


def table_loaders(
    table: str, columns: Columns = Columns()
) -> Iterator[tuple[str, int | None, Loader]]:
    """Name, level and loader of every row.

    Raises:
        TaskError: no such table, or no such column.
    """
    for number, row in enumerate(read_rows(table)):
        if columns.source not in row:
            known = ", ".join(sorted(row))
            raise TaskError(
                f"{table}: no column {columns.source!r} in row {number}; it has {known}"
            )
        level = row.get(columns.level)
        level = None if level is None else int(level)
        name = row.get(columns.name) or f"row{number}"
        identity = (f"level{level}/{name}" if level is not None else str(name)).removesuffix(".py")
        origin = f"{table} row {number}"
        source = row[columns.source]
        yield identity, level, partial(foreign_task, identity, source, level=level, origin=origin)


def read_rows(table: str) -> Iterator[Mapping[str, Any]]:
    """The rows of a `.jsonl` or `.parquet` file or of a Hugging Face dataset, one by one.

    Raises:
        TaskError: no such table, or a line that is no JSON object.
    """
    path = Path(table)
    if path.suffix == ".jsonl":
        return _jsonl_rows(_existing(path))
    if path.suffix == ".parquet":
        return _parquet_rows(_existing(path))
    if not is_dataset_name(table):
        raise TaskError(f"no table at {table}: neither a file nor the owner/name of a dataset")
    return _hub_rows(table)


def is_dataset_name(text: str) -> bool:
    """Whether a text can be the name of a Hugging Face dataset: `owner/name[:split]`."""
    return re.fullmatch(r"[\w.-]+/[\w.-]+(:[\w.-]+)?", text) is not None


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise TaskError(f"no table at {path}")
    return path


def _jsonl_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open() as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise TaskError(f"{path}: line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise TaskError(f"{path}: line {number} is not a JSON object")
            yield row


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow.parquet

    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=256):
        yield from batch.to_pylist()


def _hub_rows(name: str) -> Iterator[Mapping[str, Any]]:
    try:
        import datasets
    except ImportError as error:
        raise TaskError(
            f"{name} is no .jsonl or .parquet file; reading it as a Hugging Face dataset needs "
            "`pip install datasets`"
        ) from error
    dataset, _, split = name.partition(":")
    loaded = datasets.load_dataset(dataset, split=split or None, streaming=True)
    for part in loaded.values() if isinstance(loaded, dict) else (loaded,):
        yield from part
