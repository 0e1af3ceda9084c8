"""Presets: layouts of corpora that are known by name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .corpora import (
    Columns,
    Item,
    Unusable,
    read_folder,
    read_source,
    read_table,
    row_from_files,
)
from .records import CorpusError
from .row import Recorded

TABLES: dict[str, Columns] = {
    "table": Columns(),
    "dr-kernel": Columns(
        reference="original_python_code",
        candidate="messages",
        id="uuid",
        verdict="",
        speedup="final_speedup",
        message="",
        trajectory=True,
        speedup_accepts=True,
    ),
    "sakana": Columns(
        reference="PyTorch_Code_Module",
        candidate="CUDA_Code",
        id="",
        verdict="Correct",
        speedup="CUDA_Speedup_Native",
        message="Error",
    ),
}
"""Tables by preset. `dr-kernel` is the cold-start data of Dr. Kernel: chats, each ending in a
kernel. `sakana` is the AI CUDA Engineer Archive; its kernels are CUDA C++."""
FOLDERS = ("folder", "kernelbench-run", "llmkernel")
PRESETS = (*TABLES, *FOLDERS)

_RUN_FILE = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_MENTIONED = re.compile(r"kernel_\d+_\d+\.py")


def open_corpus(
    corpus: str,
    preset: str = "",
    names: Mapping[str, str] | None = None,
    references: Path | None = None,
) -> Iterator[Item]:
    """The items of a corpus, in its own order, which is the same each time.

    Args:
        corpus: a path, or the name of a Hugging Face dataset.
        preset: one of `PRESETS`; empty chooses `table` or `folder` by what the corpus is.
        names: for roles of `Columns` the names of a table's columns.
        references: folder with `levelN/P_name.py`, for corpora that hold candidates alone.

    Raises:
        CorpusError: not there, not readable, or not of that layout.
    """
    plain = Path(corpus).is_dir() and not any(Path(corpus).glob("*.json"))
    chosen = preset or ("folder" if plain else "table")
    if chosen in TABLES:
        return read_table(corpus, TABLES[chosen].renamed(names or {}))
    if chosen not in FOLDERS:
        raise CorpusError(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
    if names:
        raise CorpusError(f"the preset {chosen} has no columns to be named")
    folder = Path(corpus)
    if not folder.is_dir():
        raise CorpusError(f"no folder at {folder}")
    if chosen == "folder":
        return read_folder(folder)
    if references is None:
        raise CorpusError(f"the preset {chosen} needs --references, a folder with levelN/P_name.py")
    if not references.is_dir():
        raise CorpusError(f"no folder of references at {references}")
    reader = read_run if chosen == "kernelbench-run" else read_llmkernel
    return reader(folder, references)


def read_run(folder: Path, references: Path) -> Iterator[Item]:
    """A KernelBench run: `level_L_problem_P_sample_S_kernel.py`, with `eval_results.json` or not.

    Raises:
        CorpusError: the folder holds no kernel.
    """
    found = sorted(
        (tuple(int(number) for number in match.groups()), path)
        for path in folder.iterdir()
        if (match := _RUN_FILE.fullmatch(path.name))
    )
    if not found:
        raise CorpusError(f"{folder} holds no level_L_problem_P_sample_S_kernel.py")
    results = _results(folder / "eval_results.json")
    for (level, problem, sample), path in found:
        identity = path.name.removesuffix("_kernel.py")
        reference = _numbered(references, level, problem)
        recorded = _run_record(results.get((problem, sample)))
        yield row_from_files(identity, reference, path, **recorded)


def read_llmkernel(folder: Path, references: Path) -> Iterator[Item]:
    """A checkout of `Alisehen/LLMKernel`: `results/levelL/PROBLEM/{code,evaluation}`.

    The n-th `code/*.py` by name belongs to the n-th `evaluation/eval_*.json` by name. Where an
    evaluation names another file, or the numbers differ, nothing is known of the pairs that
    cannot be right, and they are left out.

    The source system gives a candidate the reference's weights by name or, failing that, by a shape
    that is unique on both sides, so candidates are judged with weights matched in that way.

    Raises:
        CorpusError: the folder holds no results.
    """
    problems = sorted(folder.glob("results/level*/*/"))
    if not problems:
        raise CorpusError(f"{folder} holds no results/levelL/PROBLEM")
    for problem in problems:
        name = f"{problem.parent.name}/{problem.name}"
        reference = read_source(references / f"{name}.py")
        codes = sorted(problem.glob("code/*.py"))
        evaluations = sorted(problem.glob("evaluation/eval_*.json"))
        for index, code in enumerate(codes):
            identity = f"{name}/{code.stem}"
            if len(codes) != len(evaluations):
                reason = f"{len(codes)} sources and {len(evaluations)} evaluations cannot be paired"
                yield Unusable(identity, reason, str(code))
                continue
            recorded = _evaluation(evaluations[index], code.name)
            if isinstance(recorded, str):
                yield Unusable(identity, recorded, str(code))
            else:
                yield row_from_files(identity, reference, code, **recorded)


def _evaluation(path: Path, code: str) -> dict[str, Any] | str:
    """What an evaluation records of one source, or why it does not belong to it."""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
        accepted = bool(data["runnable"])
        speedup = data.get("score") if accepted else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{path.name} cannot be read: {error}"
    mentioned = set(_MENTIONED.findall(text))
    if mentioned and code not in mentioned:
        return f"{path.name} is about {min(mentioned)}"
    return {
        "recorded_verdict": Recorded.ACCEPTED if accepted else Recorded.REJECTED,
        "recorded_reason": "" if accepted else _last_lines(str(data.get("message", ""))),
        "recorded_speedup": speedup if isinstance(speedup, float | int) else None,
        "weights_by_shape": True,
        "evaluation_mode": True,
    }


def _last_lines(message: str, characters: int = 600) -> str:
    """The end of a traceback: what was raised."""
    return message.strip()[-characters:]


def _results(path: Path) -> dict[tuple[int, int], Mapping[str, Any]]:
    """Results by problem and sample.

    Raises:
        CorpusError: there is such a file, but it is not of KernelBench's form.
    """
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text())
        return {
            (int(problem), int(sample["sample_id"])): sample
            for problem, samples in data.items()
            for sample in (samples if isinstance(samples, list) else [samples])
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"{path} is not KernelBench's eval_results.json: {error}") from error


def _run_record(result: Mapping[str, Any] | None) -> dict[str, Any]:
    if result is None:
        return {}
    accepted = bool(result.get("correctness"))
    metadata = result.get("metadata")
    said = metadata if isinstance(metadata, Mapping) else {}
    words = [str(said[key]) for key in sorted(said) if "error" in key or "issue" in key]
    runtime_ms, reference_ms = (_positive(result.get(key)) for key in ("runtime", "ref_runtime"))
    return {
        "recorded_verdict": Recorded.ACCEPTED if accepted else Recorded.REJECTED,
        "recorded_reason": "" if accepted else "; ".join(words)[:600],
        "recorded_speedup": reference_ms / runtime_ms if runtime_ms and reference_ms else None,
    }


def _positive(value: Any) -> float | None:
    """A time; KernelBench writes -1 for one that was not taken."""
    return float(value) if isinstance(value, float | int) and value > 0 else None


def _numbered(references: Path, level: int, problem: int) -> str | CorpusError:
    found = sorted(references.glob(f"level{level}/{problem}_*.py"))
    if len(found) != 1:
        return CorpusError(f"{len(found)} references match level{level}/{problem}_*.py")
    return read_source(found[0])
