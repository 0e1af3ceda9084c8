"""Runs: folders of generated kernels, and the results beside them, in KernelBench's format."""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .metadata import check_metadata_serializable_all_types
from .result import JUDGED, KernelExecResult

RESULTS = "eval_results.json"
PASS_AT_K = "pass_at_k_results.json"
TABLE = "eval_results.parquet"

_KEYS = ("sample_id", "compiled", "correctness", "metadata", "runtime")
_KERNEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")


@dataclass(frozen=True, slots=True, order=True)
class Sample:
    """One generated kernel of a run."""

    problem_id: int
    sample_id: int
    path: Path

    def source(self) -> str:
        """Its text; bytes that are not UTF-8 are replaced, and will not be Python."""
        return self.path.read_text(encoding="utf-8", errors="replace")


def samples(folder: Path, level: int) -> list[Sample]:
    """The kernels of a level in a run, in order.

    Raises:
        ValueError: the folder is not there, or holds no kernel of the level.
    """
    if not folder.is_dir():
        raise ValueError(f"no run folder at {folder}")
    found = []
    for path in folder.iterdir():
        named = _KERNEL.fullmatch(path.name)
        if named and int(named[1]) == level:
            found.append(Sample(int(named[2]), int(named[3]), path))
    if not found:
        raise ValueError(
            f"{folder} holds no kernel of level {level}; they are named "
            f"level_{level}_problem_<number>_sample_<number>_kernel.py"
        )
    return sorted(found)


def digest(source: str) -> str:
    """Says whether a kernel is still the one that was judged."""
    return hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(slots=True)
class Results:
    """`eval_results.json` of a run: problem to rows, one row a sample."""

    path: Path
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def kept(self, sample: Sample, settings: Mapping[str, Any]) -> bool:
        """Whether a sample has been judged already, as it is now and with these settings.

        Raises:
            ValueError: its row was written by someone else or with other settings.
        """
        row = self._row(sample)
        if row is None:
            return False
        held = row["metadata"].get("settings")
        if held != dict(settings):
            writer = f"with the settings {held}" if held else "by another program"
            raise ValueError(
                f"{self.path} holds results that were written {writer}; they are left alone: "
                "choose another folder with --output"
            )
        unchanged = row["metadata"].get("source_digest") == digest(sample.source())
        return unchanged and row["metadata"].get("status") == JUDGED

    def put(self, sample: Sample, result: KernelExecResult) -> None:
        """Add a row, in the place of the sample's former one."""
        rows = self.rows.setdefault(str(sample.problem_id), [])
        rows[:] = [row for row in rows if row["sample_id"] != sample.sample_id]
        rows.append(
            {
                "sample_id": sample.sample_id,
                "compiled": result.compiled,
                "correctness": result.correctness,
                "metadata": check_metadata_serializable_all_types(result.metadata),
                "runtime": result.runtime,
                "runtime_stats": result.runtime_stats,
            }
        )
        rows.sort(key=lambda row: row["sample_id"])

    def write(self) -> None:
        """Replace the file as a whole, so that no crash leaves half of one."""
        ordered = dict(sorted(self.rows.items(), key=lambda item: int(item[0])))
        write_json(self.path, ordered, indent=4)

    def correct(self) -> dict[str, list[bool]]:
        """Problem to whether each judged sample is correct."""
        return {
            problem: [
                row["correctness"] and row["compiled"] for row in rows if judged(row["metadata"])
            ]
            for problem, rows in sorted(self.rows.items(), key=lambda item: int(item[0]))
        }

    def _row(self, sample: Sample) -> dict[str, Any] | None:
        rows = self.rows.get(str(sample.problem_id), [])
        return next((row for row in rows if row["sample_id"] == sample.sample_id), None)


def judged(metadata: Mapping[str, Any]) -> bool:
    """Whether a row says anything about its kernel; KernelBench's own rows always do."""
    return metadata.get("status", JUDGED) == JUDGED


def read_results(folder: Path) -> Results:
    """The results of a run so far.

    Raises:
        ValueError: the file is no such results.
    """
    path = folder / RESULTS
    if not path.exists():
        return Results(path)
    try:
        rows = json.loads(path.read_text())
        for problem, entries in rows.items():
            int(problem)
            for entry in entries:
                missing = [key for key in _KEYS if key not in entry]
                if missing or not isinstance(entry["metadata"], dict):
                    raise ValueError(f"a row of problem {problem} lacks {missing or 'metadata'}")
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} holds no KernelBench results: {error}") from error
    return Results(path, rows)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The right to write results into a folder; ends with the process that holds it.

    Raises:
        ValueError: another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".eval_results.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(f"another evaluation is writing to {folder}") from error
        yield


def write_json(path: Path, data: Any, *, indent: int) -> None:
    """Write JSON to a neighbouring file, then put it in the place of the old one."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(data, indent=indent))
    temporary.replace(path)


def write_table(path: Path, level: int, results: Results) -> None:
    """One row a sample as Parquet, with what both checks say."""
    import pyarrow
    import pyarrow.parquet

    columns = {
        "level": pyarrow.int64(),
        "problem_id": pyarrow.int64(),
        "sample_id": pyarrow.int64(),
        "status": pyarrow.string(),
        "compiled": pyarrow.bool_(),
        "correctness": pyarrow.bool_(),
        "contract": pyarrow.bool_(),
        "kernelbench": pyarrow.bool_(),
        "runtime": pyarrow.float64(),
        "modelled_speedup": pyarrow.float64(),
        "metadata": pyarrow.string(),
    }
    rows = list(_table_rows(level, results.rows))
    table = pyarrow.Table.from_pylist(rows, schema=pyarrow.schema(list(columns.items())))
    temporary = path.with_suffix(".tmp")
    pyarrow.parquet.write_table(table, temporary)
    temporary.replace(path)


def _table_rows(
    level: int, rows: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[dict[str, Any]]:
    for problem, entries in sorted(rows.items(), key=lambda item: int(item[0])):
        for entry in entries:
            metadata = entry["metadata"]
            checks = metadata.get("checks", {})
            yield {
                "level": level,
                "problem_id": int(problem),
                "sample_id": entry["sample_id"],
                "status": metadata.get("status", JUDGED),
                "compiled": entry["compiled"],
                "correctness": entry["correctness"],
                "contract": checks.get("contract"),
                "kernelbench": checks.get("kernelbench"),
                "runtime": entry["runtime"],
                "modelled_speedup": metadata.get("modelled_speed", {}).get("speedup"),
                "metadata": json.dumps(metadata),
            }
