"""A corpus whose truth is known: honest kernels, tricks, mutants, and rows with something wrong.

It checks an audit from end to end. Honest kernels are right for every input that their reference
admits; a trick is a red-team kernel; a mutant is an honest kernel whose answer is spoilt on its way
out. Contracts here are those of a bare reference, as in any corpus, so tricks that break a promise
which only the suite's own task makes are left out: `BEYOND_A_REFERENCE`. So are the library's own
kernels, whose verdicts take minutes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ..cell.policy import SOURCE_CHARACTERS
from ..kernels.controls import HONEST, RED_TEAM, Control
from ..tasks.catalog import find_task
from .row import Recorded, Stage

ROWS = 200
BEYOND_A_REFERENCE = ("CMP-02", "decoy")
"""Gates and traces that a bare reference does not ask for: gradients, and right answers that
come from elsewhere."""
MUTATED = (
    *("relu", "gelu", "silu", "swiglu", "softmax", "log_softmax", "layer_norm", "rms_norm"),
    *("sum", "variance", "cumsum", "add_rms_norm"),
)
"""Honest kernels that are spoilt: cheap to judge, and with floating-point outputs."""
SPOILT: dict[str, str] = {
    "scaled": "value * 1.01",
    "zeros": "torch.zeros_like(value)",
    "negated": "-value",
    "half": "value.half().to(value.dtype)",
    "shifted": "value + 0.01",
    "constant": "torch.full_like(value, 0.5)",
    "last_dropped": "torch.cat([value.flatten()[:-1], value.flatten()[-1:] * 0]).view(value.shape)",
    "nan_dropped": "torch.where(value.isnan(), torch.zeros_like(value), value)",
}
"""What becomes of each output of a mutant."""
_MUTANT = """

_Right = ModelNew


def _spoil(value):
    if isinstance(value, (tuple, list)):
        return type(value)(_spoil(each) for each in value)
    return {expression}


class ModelNew(_Right):
    def forward(self, *inputs):
        return _spoil(super().forward(*inputs))
"""
_MISSING = "import a_package_that_nobody_has\n"
_INLINE = "from torch.utils.cpp_extension import load_inline\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One row, and what an audit has to say of it."""

    id: str
    reference: str | None
    candidate: str | None
    stage: Stage
    passed: bool | None = None
    """For a judged row, whether the contract accepts it."""
    caught_by: tuple[str, ...] = ()
    """Gates and traces each of which rejects it."""
    verdict: Recorded = Recorded.ACCEPTED

    def to_json(self) -> dict[str, object]:
        """The row as a table has it, with the truth beside it."""
        return asdict(self)


def write_synthetic(path: Path, rows: int = ROWS) -> list[Known]:
    """Write the corpus as JSONL with columns `id`, `reference`, `candidate` and `verdict`.

    Two lines in the middle are broken. The truth is in the columns `stage`, `passed` and
    `caught_by`, which an audit does not read.

    Args:
        path: the file.
        rows: how many, broken lines included; the last mutants are left out, then tricks.

    Raises:
        OSError: the file cannot be written.
    """
    known = synthetic(rows)
    with path.open("w", encoding="utf-8") as file:
        for number, row in enumerate(known, start=1):
            broken = row.id == f"row{number}"
            line = '{"id": "cut off' if broken else json.dumps(row.to_json())
            file.write(line + "\n")
    return known


def synthetic(rows: int = ROWS) -> list[Known]:
    """The rows in a fixed order, defects spread among the others."""
    defects = list(_defects())
    others = [*_honest(), *_tricks(), *_mutants()][: rows - len(defects)]
    if len(others) + len(defects) != rows:
        raise ValueError(f"there are no {rows} different rows, only {len(others) + len(defects)}")
    stride = max(1, len(others) // len(defects))
    known: list[Known] = []
    for index, row in enumerate(others):
        known.append(row)
        if index % stride == stride - 1 and defects:
            known.append(_numbered(defects.pop(0), len(known)))
    for defect in defects:
        known.append(_numbered(defect, len(known)))
    return known


def _numbered(row: Known, before: int) -> Known:
    """A broken line is known by its number alone."""
    if row.id:
        return row
    return Known(id=f"row{before + 1}", reference=None, candidate=None, stage=row.stage)


def _honest() -> Iterator[Known]:
    for control in HONEST:
        if control.library:
            continue
        yield _control("honest", control, control.source())
        yield _control("honest_again", control, f"# The same, told apart.\n{control.source()}")


def _tricks() -> Iterator[Known]:
    for control in RED_TEAM:
        if not set(control.caught_by) & set(BEYOND_A_REFERENCE):
            yield _control("trick", control, control.source())


def _mutants() -> Iterator[Known]:
    known = {control.name: control for control in HONEST}
    for name in MUTATED:
        for kind, expression in SPOILT.items():
            source = known[name].source() + _MUTANT.format(expression=expression)
            yield Known(
                id=f"mutant/{name}/{kind}",
                reference=find_task(known[name].task).source,
                candidate=source,
                stage=Stage.GATED,
                passed=False,
            )


def _control(kind: str, control: Control, source: str) -> Known:
    return Known(
        id=f"{kind}/{control.name}",
        reference=find_task(control.task).source,
        candidate=source,
        stage=Stage.GATED,
        passed=not control.caught_by,
        caught_by=control.caught_by,
    )


def _defects() -> Iterator[Known]:
    relu = next(control for control in HONEST if control.name == "relu")
    right, reference = relu.source(), find_task(relu.task).source
    rejected = Recorded.REJECTED
    rows = {
        "broken_reference": (reference.replace("return", "raise"), right, Stage.NOT_APPLICABLE),
        "reference_imports": (_MISSING + reference, right, Stage.NOT_APPLICABLE),
        "no_reference": (None, right, Stage.SKIPPED),
        "empty_reference": ("  ", right, Stage.SKIPPED),
        "no_candidate": (reference, None, Stage.SKIPPED),
        "five_megabytes": (reference, right + "#" * (5 * SOURCE_CHARACTERS), Stage.SKIPPED),
        "dependency": (reference, _MISSING + right, Stage.ARTIFACT),
        "dependency_deep": (reference, right + _MISSING, Stage.ARTIFACT),
        "cuda_inline": (reference, _INLINE + right, Stage.ARTIFACT),
        "cuda_source": (reference, "__global__ void relu(float *x) {}", Stage.ARTIFACT),
    }
    for name, (source, candidate, stage) in rows.items():
        yield Known(id=f"defect/{name}", reference=source, candidate=candidate, stage=stage)
    faults = {
        "syntax_error": right + "\n)",
        "no_model": right.replace("ModelNew", "Model"),
        "raises": right.replace("return Relu.apply(x)", "raise ValueError(x.shape)"),
        "refused": "import subprocess\n" + right,
    }
    for name, candidate in faults.items():
        yield Known(
            id=f"fault/{name}",
            reference=reference,
            candidate=candidate,
            stage=Stage.GATED,
            passed=False,
            caught_by=("fault",),
            verdict=rejected,
        )
    yield Known(id="honest/relu", reference=reference, candidate=right, stage=Stage.SKIPPED)
    for _ in range(2):
        yield Known(id="", reference=None, candidate=None, stage=Stage.SKIPPED)
