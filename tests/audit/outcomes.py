"""Outcomes made up for the tests: exact ones by hand, arbitrary ones by hypothesis."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st

from lethe_env.audit.row import Outcome, Recorded, Stage
from lethe_env.gates.battery import GATE_NAMES
from lethe_env.gates.verdict import FATAL_CHANNELS, FLOOR_CHANNELS, FLOOR_GATES

QUICK = settings(max_examples=30, derandomize=True, deadline=None, database=None)
NUMERIC = ("CMP-01", "ORD-01", "EXC-01")


def judged(name: str, op_class: str = "matmul", **fields) -> Outcome:
    """A judged row that says of itself what `Verdict` would."""
    gates = fields.setdefault("gates", {})
    channels, fault = fields.get("channels", {}), fields.get("fault", "")
    failed = [gate for gate, status in gates.items() if status == "fail"]
    ratios = fields.get("loosening", {})
    beyond = [g for g in failed if g in FLOOR_GATES and math.isinf(ratios.get(g, math.inf))]
    fatal = [name for name in FATAL_CHANNELS if name in channels]
    traces = [name for name in ("crash", *FLOOR_CHANNELS) if name in channels]
    return Outcome(
        id=name,
        stage=Stage.GATED,
        op_class=op_class,
        passed=not (fault or failed or fatal),
        floor_passed=not (fault or traces or beyond),
        **fields,
    )


def passing(name: str, op_class: str = "matmul", **fields) -> Outcome:
    """A judged row that the contract accepts."""
    return judged(name, op_class, gates={"CMP-01": "pass", "EXC-01": "pass"}, **fields)


def failing(name: str, *gates: str, op_class: str = "matmul", **fields) -> Outcome:
    """A judged row that fails the named gates and passes CMP-01 and EXC-01 otherwise."""
    statuses = {"CMP-01": "pass", "EXC-01": "pass", **dict.fromkeys(gates, "fail")}
    return judged(name, op_class, gates=statuses, **fields)


def left(name: str, stage: Stage, reason: str = "", **fields) -> Outcome:
    """A row that did not get as far as a verdict."""
    return Outcome(id=name, stage=stage, reason=reason, **fields)


_TEXT = st.text(max_size=12)
_RATIO = st.one_of(st.floats(0, 100), st.just(math.inf))
_STATUS = st.sampled_from(("pass", "fail", "not_applicable", "not_asked", "error"))


@st.composite
def verdicts(draw) -> Outcome:
    """A judged row with arbitrary findings that fit together."""
    gates = draw(st.dictionaries(st.sampled_from(GATE_NAMES), _STATUS))
    loosening = {}
    for gate, status in gates.items():
        if gate in NUMERIC and status in ("pass", "fail"):
            ratio = draw(_RATIO)
            loosening[gate] = min(ratio, 1.0) if status == "pass" else max(ratio, 1.0)
    return judged(
        "",
        draw(st.sampled_from(("matmul", "softmax", "scan"))),
        gates=gates,
        loosening=loosening,
        channels=draw(st.dictionaries(st.sampled_from((*FATAL_CHANNELS, "decoy")), _TEXT)),
        fault=draw(st.one_of(st.just(""), _TEXT)),
        allclose=draw(st.sampled_from((True, False, None))),
        recorded_verdict=draw(st.sampled_from((None, *Recorded))),
        recorded_reason=draw(_TEXT),
    )


@st.composite
def _lefts(draw) -> Outcome:
    stage = draw(st.sampled_from([stage for stage in Stage if stage is not Stage.GATED]))
    recorded = draw(st.sampled_from((None, *Recorded)))
    return left("", stage, draw(_TEXT), recorded_verdict=recorded)


@st.composite
def populations(draw) -> list[Outcome]:
    """Rows of every kind, each with its own id."""
    rows = draw(st.lists(st.one_of(verdicts(), _lefts()), max_size=12))
    return [replace(row, id=str(index)) for index, row in enumerate(rows)]
