"""Adapter for the published rows of the paper's audit (arXiv 2608.12700): verdicts, no sources.

One JSON object per line, plain or gzipped: `id`, `op_class`, `status`, `final_speedup`,
`elapsed_s`, for judged rows `gates` (name to `status` pass, fail, na or error, and `reason`),
`output_aliasing` and `native_shape`, for others `error`. The paper's own rules are applied:

* a row was accepted if `final_speedup` is above zero;
* `not_auditable` and `ref_broken` rows are not applicable;
* a row that failed to run is an artifact if the exception comes from Triton's compiler, from ptxas
  or from its check of resources; every other failure to run counts against the candidate;
* the floor holds aliasing, the count of violations does not: a row whose only evidence is an
  aliased output is on the floor and yet recorded as passing.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..gates.verdict import FLOOR_GATES
from .journal import Unread
from .row import Outcome, Recorded, Stage

ARTIFACTS = ("CompilationError", "UnsupportedLanguageConstruct", "OutOfResources", "PTXASError")
"""Exceptions of the toolchain."""
_NOT_APPLICABLE = ("not_auditable", "ref_broken")
_DID_NOT_RUN = ("cand_native_fail", "cand_load_fail", "sandbox_timeout")
_STATUS = {"pass": "pass", "fail": "fail", "na": "not_applicable", "error": "error"}


def read_published(path: Path, complain: Callable[[Unread], None]) -> Iterator[Outcome]:
    """The published rows as outcomes.

    Args:
        path: the file; gzipped if its name ends in `.gz`.
        complain: called for each line that is skipped.

    Raises:
        OSError: the file cannot be read.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield outcome_of(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                complain(Unread(number, f"not a published row ({type(error).__name__}: {error})"))


def outcome_of(row: Mapping[str, Any]) -> Outcome:
    """One published row as an outcome.

    Raises:
        KeyError: a field is missing.
        ValueError: the status is not a known one.
    """
    speedup = float(row["final_speedup"])
    status, error = row["status"], row.get("error", "")
    fields: dict[str, Any] = {
        "id": str(row["id"]),
        "op_class": row["op_class"],
        "native_shapes": (tuple(row["native_shape"]),) if "native_shape" in row else (),
        "recorded_verdict": Recorded.ACCEPTED if speedup > 0 else Recorded.REJECTED,
        "recorded_speedup": speedup,
        "elapsed_s": float(row["elapsed_s"]),
    }
    if status in _NOT_APPLICABLE:
        return Outcome(stage=Stage.NOT_APPLICABLE, reason=error, **fields)
    if status in _DID_NOT_RUN and error.startswith(ARTIFACTS):
        return Outcome(stage=Stage.ARTIFACT, reason=error, **fields)
    if status in _DID_NOT_RUN:
        fault = error or "no answer within the time limit"
        fields |= {"reason": fault, "fault": fault, "passed": False, "floor_passed": False}
        return Outcome(stage=Stage.GATED, **fields)
    if status != "gated":
        raise ValueError(f"unknown status {status!r}")
    return Outcome(stage=Stage.GATED, **fields, **_judged(row))


def _judged(row: Mapping[str, Any]) -> dict[str, Any]:
    gates = {name: _STATUS[finding["status"]] for name, finding in row["gates"].items()}
    said = {name: finding["reason"] for name, finding in row["gates"].items()}
    failed = [name for name, status in gates.items() if status == "fail"]
    broke = [name for name, status in gates.items() if status == "error"]
    crash = next((said[name] for name in broke if "CUDA error" in said[name]), "")
    channels = {"crash": crash} if crash else {}
    passed = not failed and not crash
    if row["output_aliasing"]:
        channels["aliasing"] = "an output shares memory with an input"
    return {
        "gates": gates,
        "reasons": {name: said[name] for name in (*failed, *broke)},
        "reason": said[failed[0]] if failed else next(iter(channels.values()), ""),
        "channels": channels,
        "passed": passed,
        "floor_passed": not channels and not any(gate in FLOOR_GATES for gate in failed),
    }
