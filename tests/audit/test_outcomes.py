"""What is counted of a verdict."""

from __future__ import annotations

import math

import pytest

from lethe_env.audit.journal import from_line, to_line
from lethe_env.audit.outcomes import judged
from lethe_env.audit.preparation import Prepared
from lethe_env.audit.row import Recorded, Row, Stage
from lethe_env.gates.battery import GATE_NAMES
from lethe_env.gates.verdict import Evidence, Verdict, errored, failed, not_asked, passed
from lethe_env.tasks.model import Task

ROW = Row(
    id="7",
    reference="reference é",
    candidate="candidate",
    recorded_verdict=Recorded.ACCEPTED,
    recorded_speedup=1.5,
)
TASK = Task(id="reference/abc", source="reference é")
PREPARED = Prepared(task=TASK, op_class="scan", native_shapes=((2, 3), (4,)))
RAN = passed("allclose", "5 trials", needed_tolerance=1e-5)


def verdict(*findings, allclose=RAN, **fields) -> Verdict:
    rest = [n for n in GATE_NAMES if n not in {f.gate for f in findings}]
    fine = tuple(passed(name, "right", calls=2.0, worst_ratio=0.25) for name in rest)
    return Verdict(
        task={},
        source="",
        findings=(*findings, *fine),
        allclose=allclose,
        kernel="triton",
        **fields,
    )


def outcome(*findings, **fields):
    found = judged(ROW, PREPARED, verdict(*findings, **fields), 2.5)
    assert from_line(to_line(found)) == found, "what is kept is what was found"
    return found


def test_an_accepted_row():
    found = outcome()
    assert found.stage is Stage.GATED and found.passed and found.floor_passed
    assert (found.op_class, found.native_shapes) == ("scan", ((2, 3), (4,)))
    assert (found.reference_bytes, found.candidate_bytes) == (12, 9)
    assert found.recorded_verdict is Recorded.ACCEPTED and found.recorded_speedup == 1.5
    assert found.allclose and found.allclose_hardened and found.elapsed_s == 2.5
    assert set(found.loosening.values()) == {0.25}
    assert found.reason == "" and found.kernel == "triton"


def test_a_rejected_row_keeps_its_first_evidence():
    first = Evidence(probe={"values": "normal"}, label="a call", got=math.nan, expected=1.0)
    found = outcome(
        failed("CMP-01", "wrong", evidence=(first, first), worst_ratio=8.0),
        failed("ORD-02", "runs differ", worst_ratio=0.5),
        not_asked("PRC-01", "CMP-01"),
        channels={"race": "a race", "decoy": "for show"},
    )
    assert not found.passed and not found.floor_passed and found.reason == "wrong"
    assert found.evidence["CMP-01"]["label"] == "a call"
    assert found.reasons == {"CMP-01": "wrong", "ORD-02": "runs differ"}
    assert found.loosening["CMP-01"] == 8.0
    assert found.loosening["ORD-02"] == math.inf, "no factor on its bound would make it pass"
    assert found.gates["PRC-01"] == "not_asked" and found.gates["RES-01"] == "pass"


def test_a_fatal_trace_alone_is_the_reason():
    found = outcome(channels={"decoy": "for show", "race": "a race"})
    assert (found.passed, found.reason) == (False, "a race")


@pytest.mark.parametrize(
    ("finding", "at_paper", "at_head"),
    [
        (passed("allclose", "fine", needed_tolerance=1e-5), True, True),
        (failed("allclose", "differs", needed_tolerance=2e-3), True, False),
        (failed("allclose", "differs", needed_tolerance=math.inf), False, False),
        (failed("allclose", "shape (1,) instead of (2,)"), False, False),
        (errored("allclose", "broke"), None, None),
        (None, None, None),
    ],
)
def test_both_tolerances_are_told_apart(finding, at_paper, at_head):
    found = outcome(allclose=finding)
    assert (found.allclose, found.allclose_hardened) == (at_paper, at_head)


def test_what_runs_nowhere_is_a_fault():
    fault = "forward: ValueError: no (line 3)"
    everything = [failed(name, fault) for name in GATE_NAMES]
    found = outcome(*everything, allclose=failed("allclose", fault))
    assert (found.fault, found.reason, found.kernel) == (fault, fault, "")
    assert found.stage is Stage.GATED and not found.floor_passed
    loaded = outcome(*everything, fault="the source is not Python", allclose=None)
    assert loaded.fault == "the source is not Python"
    somewhere = outcome(failed("CMP-01", fault), allclose=failed("allclose", fault))
    assert somewhere.fault == "", "some of its calls came back"


def test_what_broke_decides_nothing_unless_something_else_rejects():
    broke = errored("ORD-01", "the harness broke")
    alone = outcome(broke)
    assert (alone.stage, alone.passed, alone.reason) == (Stage.ERROR, None, "the harness broke")
    rejected = outcome(broke, failed("CMP-01", "wrong"))
    assert (rejected.stage, rejected.passed) == (Stage.GATED, False)
    assert rejected.gates["ORD-01"] == "error"
    reference = errored("ORD-01", "task reference/abc: the reference fails on its own inputs: x")
    assert outcome(reference).stage is Stage.NOT_APPLICABLE


def test_an_artifact_is_not_judged():
    crash = "forward: RuntimeError: PassManager::run failed"
    found = outcome(*(failed(name, crash) for name in GATE_NAMES))
    assert (found.stage, found.passed) == (Stage.ARTIFACT, None)
    assert found.reason.startswith("compiler crash: ") and found.op_class == "scan"
