"""One sampled row with everything that a person needs to judge it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..env.prompt import CLAIMS
from .evidence import FAULT, NOTHING, evidence_of
from .row import Outcome
from .sample import Sampled

SOURCES = "sources"
"""Folder with the full verdict of each sampled row, as `Outcome.keeps_file` names it."""
_NOT_KEPT = "The source is not part of this audit."


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One thing that counts against the row."""

    name: str
    claim: str
    """What a correct kernel would do."""
    reason: str
    call: str = ""
    """The failing call in words."""
    where: str = ""
    """Output and index."""
    got: str = ""
    expected: str = ""
    allowed: str = ""
    command: str = ""
    """Makes the call again; to be run in the report's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """One row, ready to be judged."""

    outcome: Outcome
    stratum: str
    stratum_rows: int
    charges: tuple[Charge, ...]
    reference: str
    candidate: str
    file: str
    """Path of the full verdict, relative to the report; empty where there is none."""


def exhibit(sampled: Sampled, folder: Path) -> Exhibit:
    """Gather one sampled row.

    Args:
        sampled: the row.
        folder: the report's folder; full verdicts are looked for in its `sources`.
    """
    outcome = sampled.outcome
    name = f"{SOURCES}/{outcome.keeps_file}"
    verdict = _verdict(folder / name)
    found = "task" in verdict
    return Exhibit(
        outcome=outcome,
        stratum=f"{sampled.stratum[0]}, {_words(sampled.stratum[1])}",
        stratum_rows=sampled.stratum_rows,
        charges=tuple(
            _charge(outcome, charge, name if found else "") for charge in evidence_of(outcome)
        ),
        reference=_text(verdict.get("task", {}), "source") or verdict.get("problem", _NOT_KEPT),
        candidate=_text(verdict, "source") or verdict.get("problem", _NOT_KEPT),
        file=name if found else "",
    )


def _charge(outcome: Outcome, name: str, file: str) -> Charge:
    evidence = outcome.evidence.get(name, {})
    claim = CLAIMS.get(name, "")
    said = {FAULT: outcome.fault, **outcome.channels, **outcome.reasons}
    where = f"{evidence.get('path', '')}{list(evidence.get('index') or ()) or ''}"
    repeatable = file and evidence.get("probe")
    return Charge(
        name=_words(name),
        claim=claim,
        reason=said.get(name, ""),
        call=", ".join(filter(None, (evidence.get("label"), evidence.get("configuration")))),
        where=where,
        got=evidence.get("note") or _number(evidence.get("got")),
        expected=_number(evidence.get("expected")),
        allowed=_number(evidence.get("allowed")),
        command=f"lethe reproduce {shlex.quote(file)} --gate {name}" if repeatable else "",
    )


def _words(name: str) -> str:
    return {FAULT: "does not run", NOTHING: "accepted"}.get(name, name.replace("_", " "))


def _number(value: Any) -> str:
    if value is None:
        return ""
    try:
        return f"{float(value):.6g}"
    except (TypeError, ValueError):
        return str(value)


def _verdict(path: Path) -> dict[str, Any]:
    """The kept verdict, nothing if none is kept, or what is wrong with it as `problem`."""
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        return {"problem": f"{path.name} cannot be read: {error}"}
    if not isinstance(data, dict) or not isinstance(data.get("task"), dict):
        return {"problem": f"{path.name} is not a verdict"}
    return data


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
