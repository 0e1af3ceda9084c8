"""Samples on disk: a table to read with, and a journal to go on from."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from ..gates.battery import GATE_NAMES
from .samples import Sample

if TYPE_CHECKING:
    from pandas import DataFrame

TABLE, SUMMARY, JOURNAL = "samples.parquet", "summary.json", "journal.jsonl"


def save(samples: Sequence[Sample], summary: Mapping[str, Any], folder: Path) -> Path:
    """Write the samples as Parquet and the summary as JSON; returns the folder."""
    import pyarrow
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    rows = [{**_flat(sample), "sample": json.dumps(sample.to_json())} for sample in samples]
    parquet.write_table(pyarrow.Table.from_pylist(rows, _schema(pyarrow)), folder / TABLE)
    (folder / SUMMARY).write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n")
    return folder


def load(folder: Path) -> tuple[Sample, ...]:
    """Read the samples that `save` wrote.

    Raises:
        FileNotFoundError: there are none.
        ValueError: they are of another version.
    """
    from pyarrow import parquet

    table = folder / TABLE
    if not table.is_file():
        raise FileNotFoundError(f"no evaluation at {folder}: {table.name} is missing")
    column = parquet.read_table(table, columns=["sample"]).column("sample")
    return tuple(Sample.from_json(json.loads(text)) for text in column.to_pylist())


def to_pandas(samples: Iterable[Sample]) -> DataFrame:
    """One row per sample, one column per gate.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError("a data frame needs `pip install lethe_env[report]`") from error
    return pandas.DataFrame([_flat(sample) for sample in samples], columns=list(_COLUMNS))


_TEXT_COLUMNS = ("task", "op_class", "source", "status", "reason", "origin", "kernel", "speed_kind")
_COLUMNS = {
    **dict.fromkeys(_TEXT_COLUMNS, "string"),
    **dict.fromkeys(("number", "turns"), "int64"),
    **dict.fromkeys(("passed", "allclose_accepts", "false_accept"), "bool_"),
    "speedup": "float64",
    "rejected_by": "list",
    **dict.fromkeys(GATE_NAMES, "string"),
}


def _flat(sample: Sample) -> dict[str, Any]:
    verdict = sample.verdict
    found = {f.gate: f.status.value for f in verdict.findings} if verdict is not None else {}
    return {
        "task": sample.task,
        "op_class": sample.op_class,
        "source": sample.source,
        "status": sample.status,
        "reason": sample.reason,
        "origin": sample.origin,
        "kernel": None if verdict is None else verdict.kernel,
        "speed_kind": sample.speed_kind,
        "number": sample.number,
        "turns": sample.turns,
        "passed": sample.passed,
        "allclose_accepts": sample.allclose_accepts,
        "false_accept": sample.false_accept,
        "speedup": sample.speedup,
        "rejected_by": [] if verdict is None else list(verdict.rejected_by),
        **{gate: found.get(gate) for gate in GATE_NAMES},
    }


def _schema(pyarrow: Any) -> Any:
    """Types by column, so that a table without rows or values has them too."""
    fields = [
        (name, pyarrow.list_(pyarrow.string()) if kind == "list" else getattr(pyarrow, kind)())
        for name, kind in _COLUMNS.items()
    ]
    return pyarrow.schema([*fields, ("sample", pyarrow.string())])


class Journal:
    """Samples appended as they finish, so that an evaluation that was stopped goes on.

    The first line holds what the samples have in common; another evaluation in the same folder is
    refused. Lines that were cut off are left out, and so is what the harness failed to judge: both
    are graded again. Without a folder nothing is kept.

    Args:
        folder: where the journal lies.
        common: settings that all samples share.

    Raises:
        ValueError: the folder holds another evaluation, or someone else is writing to it.
    """

    def __init__(self, folder: Path | None, common: Mapping[str, Any]) -> None:
        self.samples: dict[str, Sample] = {}
        """Finished samples by key."""
        self._stack = ExitStack()
        self._file: IO[str] | None = None
        if folder is not None:
            with ExitStack() as opening:
                self._file = opening.enter_context(_locked(folder))
                self._read(folder, dict(common))
                self._stack = opening.pop_all()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def add(self, key: str, sample: Sample) -> None:
        """Keep a sample; it is on disk when this returns."""
        self.samples[key] = sample
        self._write({"key": key, "sample": sample.to_json()})

    def _read(self, folder: Path, common: dict[str, Any]) -> None:
        if self._file is None:
            return
        self._file.seek(0)
        text = self._file.read()
        if text and not text.endswith("\n"):
            self._file.write("\n")
        rows = [row for line in text.splitlines() if (row := _row(line)) is not None]
        held = rows[0].get("common") if rows else None
        if held is None:
            self._write({"common": common})
        elif held != common:
            raise ValueError(
                f"{folder} holds another evaluation, of {held}; this one is of {common}. "
                "Choose another folder."
            )
        for row in rows[1:]:
            sample = _sample(row)
            if sample is not None and sample.judged:
                self.samples[row["key"]] = sample

    def _write(self, row: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()


def _locked(folder: Path) -> IO[str]:
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / JOURNAL).open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise ValueError(f"another evaluation is writing to {folder}") from error
    return file


def _row(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _sample(row: Mapping[str, Any]) -> Sample | None:
    try:
        return Sample.from_json(row["sample"])
    except (KeyError, TypeError, ValueError):
        return None
