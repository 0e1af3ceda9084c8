"""The two records of an audit: a row of the corpus, and what became of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Stage(StrEnum):
    """How far a row got on the way to the denominator."""

    SKIPPED = "skipped"
    """The row itself could not be used: a field is missing, the source is too large, its id is
    taken."""
    NOT_ACCEPTED = "not_accepted"
    """The source system had rejected the candidate, and the run was asked to leave such rows."""
    NOT_APPLICABLE = "not_applicable"
    """The reference cannot be judged against: it does not run, or has no input to perturb."""
    ARTIFACT = "artifact"
    """The toolchain, a missing dependency or missing hardware is to blame, not the candidate."""
    ERROR = "error"
    """The harness broke: no evidence either way."""
    GATED = "gated"
    """Judged. A candidate that cannot run for reasons of its own is judged too."""


class Recorded(StrEnum):
    """What the corpus itself says of a candidate."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One candidate of a corpus, as it was read."""

    id: str
    reference: str
    """Source text of the module to be replaced, KernelBench's convention."""
    candidate: str
    """Source text that defines `ModelNew`."""
    recorded_verdict: Recorded | None = None
    recorded_reason: str = ""
    """The source system's own words on a rejection."""
    recorded_speedup: float | None = None
    weights_by_shape: bool = False
    """Whether the source system gives candidates the reference's weights by shape, see `Task`."""
    evaluation_mode: bool = False
    """Whether the source system calls modules in evaluation mode, see `Task`."""
    origin: str = ""
    """Where the row was found: file and line, or file and row."""

    @property
    def reference_digest(self) -> str:
        """Names the reference's text."""
        return digest(self.reference)

    @property
    def candidate_digest(self) -> str:
        """Names the candidate's text."""
        return digest(self.candidate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one row: all that the report reads."""

    id: str
    """Unique within a run."""
    stage: Stage
    reason: str = ""
    """Why the row did not get further; for a judged row the first reason for its rejection."""
    op_class: str = "other"
    reference_digest: str = ""
    candidate_digest: str = ""
    reference_bytes: int = 0
    candidate_bytes: int = 0
    native_shapes: tuple[tuple[int, ...], ...] = ()
    """Shape of each tensor input as the reference's `get_inputs` draws it."""
    gates: Mapping[str, str] = field(default_factory=dict)
    """For each gate its status (`gates.verdict.Status`), or `not_asked` where an earlier failure
    settled the verdict before this gate had its turn."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """One sentence for each gate that failed or broke."""
    evidence: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For each failed gate its first `gates.verdict.Evidence`, as JSON."""
    loosening: Mapping[str, float] = field(default_factory=dict)
    """For each gate that compares numbers, the factor by which its bound would have to be
    multiplied for the gate to pass; infinite where no factor would do, because of a mask, a dtype,
    a shape or a fault."""
    channels: Mapping[str, str] = field(default_factory=dict)
    """Traces beside the gates (`crash`, `aliasing`, …), each with one sentence."""
    fault: str = ""
    """Why the candidate could not run at all, where that is its own fault."""
    kernel: str = ""
    """`triton`, `decoy` or `none`: whether kernels do the work; empty where not known."""
    passed: bool | None = None
    """Whether the contract accepts the candidate; `None` unless it was judged."""
    floor_passed: bool | None = None
    """Whether nothing was found that no choice of tolerance could explain."""
    allclose: bool | None = None
    """Whether KernelBench's rule accepts at its paper's tolerance 1e-2; `None` where not asked."""
    allclose_hardened: bool | None = None
    """The same at today's tolerance for the dtype, 1e-4 in float32."""
    recorded_verdict: Recorded | None = None
    recorded_reason: str = ""
    recorded_speedup: float | None = None
    elapsed_s: float = 0.0

    @property
    def failed_gates(self) -> tuple[str, ...]:
        """Names of the gates with evidence against the candidate, in the recorded order."""
        return tuple(name for name, status in self.gates.items() if status == "fail")

    @property
    def keeps_file(self) -> str:
        """Name of the file with this row's full verdict, where one is kept."""
        return f"{self.reference_digest}-{self.candidate_digest}.json"


def digest(text: str) -> str:
    """Sixteen hexadecimal digits that name a text: enough for billions of them."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
