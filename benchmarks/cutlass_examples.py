"""NVIDIA's own examples of kernels in the CuTe DSL on the virtual GPU, held to the truth.

Each is imported from a checkout of CUTLASS, compiled for sm_100a without a GPU, run at a small
size, once with units that work as late and once as early as they may, and compared with torch in
float64 on the same operands. `error` is the largest over its bound; `refused` names what the
virtual GPU does not have.

Usage: python benchmarks/cutlass_examples.py --cutlass PATH [--only NAME …] [--json]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # PYTHONSAFEPATH leaves it out

import torch
from cutlass_cases import Case, Trial, cases
from rich.console import Console
from rich.table import Table

from lethe_env.kernels.cute_dsl import compile_host, load
from lethe_env.vgpu.cute.function import VirtualFunction
from lethe_env.vgpu.ptx.model import UnsupportedError
from lethe_env.vgpu.session import Finding

EXAMPLES = Path("examples/python/CuTeDSL")
BLACKWELL = EXAMPLES / "cute/blackwell"
_NAMES = {"float16": "Float16", "bfloat16": "BFloat16", "float32": "Float32"}


@dataclass(frozen=True)
class Outcome:
    """What became of an example."""

    example: str
    configuration: str
    refused: str | None = None
    """What the virtual GPU lacks, with opcode and line."""
    shapes: str = ""
    error: float | None = None
    """The largest over its bound: 1 at most if all is well."""
    same_bits: bool | None = None
    """Whether early and late units gave the same."""
    findings: dict[str, int] | None = None
    """Lines of the example with a finding, by its kind."""
    products: int = 0
    """Multiplications and additions on tensor cores."""
    seconds: float = 0.0
    """Of one run, without compiling."""


def check_checkout(path: Path) -> None:
    """See that examples are there.

    Raises:
        SystemExit: they are not.
    """
    if not (path / BLACKWELL).is_dir():
        raise SystemExit(
            f"{path} is no checkout of CUTLASS: it has no folder {BLACKWELL}; "
            "git clone https://github.com/NVIDIA/cutlass gives one"
        )


def commit_of(path: Path) -> str:
    """The checkout's commit, or `unknown` where git does not know it."""
    if not (path / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(path), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def example(path: Path, file: str) -> ModuleType:
    """A fresh module from a checkout."""
    source = path.resolve() / BLACKWELL / file
    examples = path.resolve() / EXAMPLES
    for folder in (examples, examples / "cute", source.parent):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    name = f"cutlass_example_{source.stem}"
    spec = importlib.util.spec_from_file_location(name, source)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{source} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def compiled(trial: Trial) -> VirtualFunction:
    """The host function, compiled for its operands."""
    given = [_placeholder(x) if isinstance(x, torch.Tensor) else x for x in trial.operands]
    at = len(given) - (0 if isinstance(trial.operands[-1], torch.Tensor) else 1)
    return VirtualFunction(compile_host(trial.host, *given[:at], *trial.constants, *given[at:]))


def _placeholder(tensor: torch.Tensor) -> Any:
    dtype = getattr(load("cutlass"), _NAMES[str(tensor.dtype).removeprefix("torch.")])
    make = load("cutlass.cute.runtime").make_fake_tensor
    return make(dtype, tuple(tensor.shape), tensor.stride(), assumed_align=16)


def outcome(case: Case, path: Path) -> Outcome:
    """Run one."""
    torch.manual_seed(0)
    trial = case.prepare(example(path, case.file))
    try:
        function = compiled(trial)
        found, errors, seconds = [], [], 0.0
        for function.session.early in (False, True):
            started = time.perf_counter()
            function(*trial.operands)
            seconds = time.perf_counter() - started
            judged = trial.judge()
            found.append([result.clone() for _, result, _, _ in judged])
            errors += [_worst(result, truth, bound) for _, result, truth, bound in judged]
    except UnsupportedError as error:
        return Outcome(case.name, case.configuration, _refusal(error))
    findings = function.session.findings
    for line in sorted({_line(finding) for finding in findings}):
        print(f"{case.name}: {line}", file=sys.stderr)
    _, counts = function.session.counts[-1]
    return Outcome(
        case.name,
        case.configuration,
        shapes=" ".join("×".join(map(str, x.shape)) for x in trial.operands if torch.is_tensor(x)),
        error=max(errors),
        same_bits=all(torch.equal(a, b) for a, b in zip(*found, strict=True)),
        findings=by_kind(findings),
        products=sum(counts.mma_operations.values()),
        seconds=seconds,
    )


def _refusal(error: UnsupportedError) -> str:
    """Opcode and line, without where the checkout lies."""
    words = str(error).removeprefix("unsupported by the virtual GPU: ").split(" ")
    return " ".join(Path(word).name if os.sep in word else word for word in words)


def _worst(result: torch.Tensor, truth: torch.Tensor, bound: torch.Tensor) -> float:
    """The largest error over its bound; infinite where anything is not finite."""
    ratio = ((result.double() - truth).abs() / bound).nan_to_num(torch.inf, torch.inf)
    return float(ratio.max())


def _line(finding: Finding) -> str:
    return f"{finding.kind}: {Path(finding.file).name}:{finding.line}: {finding.detail}"


def by_kind(findings: Iterable[Finding]) -> dict[str, int]:
    """Lines of source with a finding, by its kind."""
    lines = defaultdict(set)
    for finding in findings:
        lines[finding.kind].add((finding.file, finding.line))
    return {kind: len(found) for kind, found in sorted(lines.items())}


def table(outcomes: Iterable[Outcome], commit: str) -> Table:
    """For people."""
    shown = Table(title=f"CUTLASS {commit}, sm_100a, on the virtual GPU")
    for name in ("example", "configuration", "shapes", "error / bound", "lines with findings",
                 "products, MFLOP", "s"):  # fmt: skip
        shown.add_column(name)
    for row in outcomes:
        if row.refused is not None:
            shown.add_row(row.example, row.configuration, f"refused: {row.refused}")
            continue
        found = ", ".join(f"{kind} {count}" for kind, count in (row.findings or {}).items())
        bits = "" if row.same_bits else " (bits differ)"
        shown.add_row(
            *(row.example, row.configuration, row.shapes, f"{row.error:.2f}{bits}"),
            *(found or "none", f"{row.products / 1e6:.0f}", f"{row.seconds:.2f}"),
        )
    return shown


def main() -> None:
    known = list(dict.fromkeys(case.name for case in cases()))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cutlass", type=Path, required=True, help="a checkout")
    parser.add_argument("--only", nargs="+", choices=known, default=known, help="which examples")
    parser.add_argument("--json", action="store_true", help="print one object")
    arguments = parser.parse_args()
    check_checkout(arguments.cutlass)
    load()  # before an example does, which would look for a driver
    warnings.simplefilter("ignore")
    outcomes = []
    for case in cases():
        if case.name in arguments.only:
            print(f"{case.name}, {case.configuration}", file=sys.stderr)
            outcomes.append(outcome(case, arguments.cutlass))
    commit = commit_of(arguments.cutlass)
    if arguments.json:
        print(json.dumps({"commit": commit, "examples": [asdict(row) for row in outcomes]}))
    else:
        Console(width=200).print(table(outcomes, commit))


if __name__ == "__main__":
    main()
