"""The artifact predicate: what says nothing about a candidate, because it cannot be tried here.

Before a candidate runs, a row is an artifact if its source

1. is CUDA C++ (not Python, and holds `#include` or `__global__`), or imports or names something
   that needs a compiler or a system which the verifier does not have: `NEEDS`;
2. imports, at module level and outside of `try`, a package that is not installed.

After it ran, a row is an artifact if nothing rejects it and every gate that broke says that

3. the device cannot run what a GPU could, `UNSUPPORTED`, or is too slow for it, `TOO_SLOW`;

or if no gate passed and every gate that failed or broke says that

4. Triton's own machinery broke on the source: one of `COMPILER_CRASHES`;
5. Triton or torch has no such name, here: one of `OTHER_VERSIONS`. Only where the source system did
   not record a rejection: where it did, the name was not there either.

Everything else that keeps a candidate from running is its own fault: a syntax error, a shape that
its kernel cannot take, a compile error in its own code, an exception, a refusal by the policy.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec

from ..gates.verdict import Finding, Status, Verdict, errored
from .row import Recorded, Row

NEEDS: dict[str, str] = {
    "torch.utils.cpp_extension": "a CUDA or C++ compiler",
    "load_inline": "a CUDA or C++ compiler",
    "pycuda": "a CUDA compiler",
    "cupy": "a CUDA compiler",
    "numba.cuda": "a CUDA compiler",
    "cuda.bindings": "the CUDA driver",
    "tilelang": "TileLang",
    "cutlass": "CUTLASS",
    "tinygrad": "tinygrad",
    "jax": "JAX",
    "thunderkittens": "ThunderKittens",
}
"""Modules and names that a source may import, and what they need that is not here."""
COMPILER_CRASHES = (
    r"PassManager::run failed",
    r"PTXASError|`?ptxas`? failed|Internal Triton PTX codegen error",
    r"LLVM ERROR|failed to translate module to LLVM",
)
OTHER_VERSIONS = (
    r"module '(triton|torch)[\w.]*' has no attribute",
    r"cannot import name '\w+' from '(triton|torch)[\w.]*'",
    r"No module named '(triton|torch)\.[\w.]+'",
    r"type object '(tl|triton|torch)[\w.]*' has no attribute",
)
UNSUPPORTED = r"^unsupported by the virtual GPU: "
TOO_SLOW = r"no answer within [\d.]+ seconds|the calls before had taken [\d.]+ seconds"
"""A deadline that a call missed. Where kernels are compiled and run on a CPU, that says nothing."""
_CUDA_SOURCE = re.compile(r"^\s*#\s*include\b|\b__global__\b", re.MULTILINE)


def artifact_before(row: Row) -> str:
    """Why the candidate cannot be tried here, by its text alone; empty if it can."""
    try:
        tree = ast.parse(row.candidate)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "CUDA C++: there is no compiler for it" if _CUDA_SOURCE.search(row.candidate) else ""
    for name in _named(tree):
        for needy, what in NEEDS.items():
            if name == needy or name.startswith(f"{needy}."):
                return f"missing hardware or compiler: {needy} needs {what}"
    for package in _required(tree):
        if not _installed(package):
            return f"missing dependency: {package} is not installed"
    return ""


def without_deadlines(verdict: Verdict) -> Verdict:
    """The verdict with `ERROR` for each gate whose evidence is missed deadlines, but on a GPU."""
    if verdict.environment.get("device") == "cuda":
        return verdict
    near = verdict.allclose
    return replace(
        verdict,
        findings=tuple(map(_void_if_slow, verdict.findings)),
        allclose=None if near is None else _void_if_slow(near),
    )


def _void_if_slow(finding: Finding) -> Finding:
    said = [piece.note for piece in finding.evidence] or [finding.reason]
    late = finding.status is Status.FAIL and _all_say(TOO_SLOW, said)
    return errored(finding.gate, finding.reason) if late else finding


def artifact_after(row: Row, verdict: Verdict) -> str:
    """Why the verdict says nothing about the candidate; empty if it does."""
    broke = [f.reason for f in verdict.findings if f.status is Status.ERROR]
    if broke and not verdict.rejected_by and _all_say(f"{UNSUPPORTED}|{TOO_SLOW}", broke):
        slow = next((reason for reason in broke if re.search(TOO_SLOW, reason)), None)
        return f"too slow here: {slow}" if slow else f"missing hardware: {broke[0]}"
    if any(finding.status is Status.PASS for finding in verdict.findings):
        return ""
    reasons = broke + [f.reason for f in verdict.findings if f.status is Status.FAIL]
    if _all_say("|".join(COMPILER_CRASHES), reasons):
        return f"compiler crash: {reasons[0]}"
    rejected = row.recorded_verdict is Recorded.REJECTED
    if not rejected and _all_say("|".join(OTHER_VERSIONS), reasons):
        return f"other version: {reasons[0]}"
    return ""


def _all_say(pattern: str, reasons: Sequence[str]) -> bool:
    return bool(reasons) and all(re.search(pattern, reason) for reason in reasons)


def _named(tree: ast.Module) -> Iterator[str]:
    """Every module and every name that is imported, dotted, and every function that is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node.func.id if isinstance(node.func, ast.Name) else node.func.attr


def _required(tree: ast.Module) -> Iterator[str]:
    """Packages without which the module cannot be imported."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@cache
def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False
