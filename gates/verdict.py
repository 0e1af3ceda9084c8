"""Findings of the gates, and the verdict that holds them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from .speed import Speed

SCHEMA_VERSION = 1
"""Raised whenever a field of the JSON form changes its meaning or goes away."""

FLOOR_GATES = ("EXC-01", "ORD-02")
FLOOR_CHANNELS = (
    "aliasing",
    "device",
    "out_of_bounds",
    "uninitialised_read",
    "race",
    "asynchronous",
)


class Status(StrEnum):
    """What a gate found."""

    PASS = "pass"
    FAIL = "fail"
    """Evidence against the candidate."""
    NOT_APPLICABLE = "not_applicable"
    """The gate has nothing to ask here; never charged, never counted as a pass."""
    ERROR = "error"
    """The harness broke: no evidence either way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One failure, described so that a person can make it happen again."""

    probe: Mapping[str, Any]
    """`Probe.to_json()` of the failing call."""
    label: str
    path: str = ""
    """Which output or gradient."""
    index: tuple[int, ...] = ()
    got: float | None = None
    expected: float | None = None
    allowed: float | None = None
    """Largest permitted absolute difference at this element; `None` where masks differ."""
    elements: int = 0
    """How many elements of this tensor are wrong."""
    configuration: str = ""
    """Which autotune configurations the call launched, by kernel."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One gate's result."""

    gate: str
    status: Status
    reason: str
    score: float = 0.0
    """Share of the gate's probes that passed; 1 for a pass, 0 where nothing was asked."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """What was measured, units in the key; `worst_ratio` is error over allowed error."""
    evidence: tuple[Evidence, ...] = ()

    @property
    def left_unasked(self) -> bool:
        """Whether the gate would have had something to ask, had an earlier one not failed."""
        return self.status is Status.NOT_APPLICABLE and self.reason.startswith(_NOT_ASKED)

    @property
    def beyond_tolerance(self) -> bool:
        """Whether this is a failure that no multiple of the bound would excuse."""
        factor = self.measured.get("worst_ratio", math.inf)
        return self.status is Status.FAIL and not math.isfinite(factor)

    def __post_init__(self) -> None:
        if not self.reason:
            raise ValueError(f"{self.gate}: a finding needs a reason")
        if self.status is Status.PASS and not self.measured:
            raise ValueError(f"{self.gate}: a pass must show what it measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Everything the verifier found out about one candidate on one task."""

    task: Mapping[str, Any]
    """`Task.to_json()`."""
    source: str
    """The candidate's source text."""
    findings: tuple[Finding, ...]
    """One finding per gate, in the battery's order."""
    fault: str = ""
    """Why the candidate could not be judged at all: refused, not loadable, no `ModelNew`."""
    channels: Mapping[str, str] = field(default_factory=dict)
    """What was seen beside the gates, by name, each with one sentence: `crash`, `aliasing`,
    `out_of_bounds`, `device`, `decoy`."""
    kernel: str = "none"
    """`triton` if kernels do the work, `decoy` if the output is right without them, `none`."""
    allclose: Finding | None = None
    """What KernelBench's rule says of the same candidate."""
    speed: Speed | None = None
    """Modelled or measured times; `None` where `notes["speed"]` says why there are none."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What was left out and why, by subject, each with one sentence: `speed`, `autotune`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Device, versions, seed, containment."""
    time_s: Mapping[str, float] = field(default_factory=dict)
    """Wall time by phase, seconds."""

    @property
    def passed(self) -> bool:
        """No fault, no forbidden trace, and every gate passed or did not apply."""
        if self.fault or any(channel in self.channels for channel in FATAL_CHANNELS):
            return False
        fine = (Status.PASS, Status.NOT_APPLICABLE)
        return all(f.status in fine for f in self.findings) and any(
            f.status is Status.PASS for f in self.findings
        )

    @property
    def errored(self) -> bool:
        """Whether the harness broke, which voids the verdict."""
        return any(finding.status is Status.ERROR for finding in self.findings)

    @property
    def failed_gates(self) -> tuple[str, ...]:
        """Names of the gates that have evidence against the candidate."""
        return tuple(f.gate for f in self.findings if f.status is Status.FAIL)

    @property
    def rejected_by(self) -> tuple[str, ...]:
        """Failed gates and forbidden traces, by name."""
        fatal = tuple(name for name in FATAL_CHANNELS if name in self.channels)
        return (*(("fault",) if self.fault else ()), *self.failed_gates, *fatal)

    @property
    def floor_passed(self) -> bool:
        """The tolerance-free floor: nothing that any choice of tolerance could explain."""
        if self.fault or any(name in self.channels for name in (*FLOOR_CHANNELS, "crash")):
            return False
        return not any(f.gate in FLOOR_GATES and f.beyond_tolerance for f in self.findings)

    def finding(self, gate: str) -> Finding:
        """The finding of one gate.

        Raises:
            KeyError: no gate of that name reported.
        """
        for finding in self.findings:
            if finding.gate == gate:
                return finding
        raise KeyError(f"no finding of {gate} in this verdict")

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping; NaN and infinities become strings."""
        return _plain({"schema_version": SCHEMA_VERSION, "passed": self.passed, **asdict(self)})

    def dumps(self) -> str:
        """The JSON text, strict JSON without NaN literals."""
        return json.dumps(self.to_json(), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """Rebuild an equal verdict.

        Raises:
            ValueError: the text was written under another schema version.
        """
        version = data.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(f"verdict schema {version} cannot be read; this is {SCHEMA_VERSION}")
        rest = {k: v for k, v in data.items() if k not in ("schema_version", "passed")}
        rest["findings"] = tuple(_finding(item) for item in rest["findings"])
        rest["allclose"] = _finding(rest["allclose"]) if rest["allclose"] else None
        rest["speed"] = Speed.from_json(rest["speed"]) if rest.get("speed") else None
        return cls(**rest)


FATAL_CHANNELS = ("crash", *FLOOR_CHANNELS)
"""Traces that no correct kernel leaves. `decoy` is not among them: the values were right."""


def passed(gate: str, reason: str, **measured: float) -> Finding:
    """A pass; it must show what was measured."""
    return Finding(gate=gate, status=Status.PASS, reason=reason, score=1.0, measured=measured)


def not_applicable(gate: str, reason: str) -> Finding:
    """Nothing to ask."""
    return Finding(gate=gate, status=Status.NOT_APPLICABLE, reason=reason)


def not_asked(gate: str, failure: str) -> Finding:
    """Not asked in full, since an earlier failure settled the verdict."""
    return not_applicable(gate, f"{_NOT_ASKED}{failure} had failed, and that was enough")


def failed(
    gate: str,
    reason: str,
    *,
    score: float = 0.0,
    evidence: tuple[Evidence, ...] = (),
    **measured: float,
) -> Finding:
    """Evidence against the candidate."""
    return Finding(
        gate=gate,
        status=Status.FAIL,
        reason=reason,
        score=score,
        measured=measured,
        evidence=evidence,
    )


def errored(gate: str, reason: str) -> Finding:
    """The harness broke."""
    return Finding(gate=gate, status=Status.ERROR, reason=reason)


_NOT_ASKED = "not asked: "
_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _number(value: Any) -> Any:
    return _WORDS.get(value, value) if isinstance(value, str) else value


def _finding(data: Mapping[str, Any]) -> Finding:
    evidence = tuple(
        Evidence(
            **{
                **item,
                "index": tuple(item["index"]),
                "got": _number(item["got"]),
                "expected": _number(item["expected"]),
                "allowed": _number(item["allowed"]),
            }
        )
        for item in data["evidence"]
    )
    measured = {key: _number(value) for key, value in data["measured"].items()}
    return Finding(
        **{**data, "status": Status(data["status"]), "measured": measured, "evidence": evidence}
    )
