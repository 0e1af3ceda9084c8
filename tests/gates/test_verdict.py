import json
import math

import pytest

from lethe_env.gates.channels import channels
from lethe_env.gates.results import Results
from lethe_env.gates.speed import Speed
from lethe_env.gates.truth import Truth
from lethe_env.gates.verdict import (
    FATAL_CHANNELS,
    FLOOR_CHANNELS,
    Evidence,
    Finding,
    Status,
    Verdict,
    errored,
    failed,
    not_applicable,
    passed,
)
from lethe_env.tasks.model import Task
from lethe_env.tasks.observation import SANITIZER_KINDS, Observation, SanitizerFinding
from lethe_env.tasks.probe import Probe
from lethe_env.tasks.work import KernelWork
from lethe_env.vgpu.machine.layout import FINDING_KINDS

FAILURE = failed(
    "EXC-01",
    "wrong",
    score=0.5,
    evidence=(
        Evidence(
            probe={"sizes": {"n": 3}},
            label="nan float32",
            path="output",
            index=(1, 2),
            got=0.0,
            expected=math.nan,
            allowed=None,
            elements=4,
        ),
    ),
    worst_ratio=math.inf,
)


def verdict(*findings, **fields):
    return Verdict(task={"id": "t"}, source="x", findings=findings, **fields)


def test_json_round_trip_keeps_everything_with_nan_and_infinity():
    original = verdict(passed("CMP-01", "fine", probes=3.0), FAILURE, kernel="triton")
    text = original.dumps()
    assert "NaN" not in text and "Infinity" not in text
    again = Verdict.from_json(json.loads(text))
    assert again.dumps() == text
    evidence = again.finding("EXC-01").evidence[0]
    assert math.isnan(evidence.expected)
    assert evidence.index == (1, 2)
    assert again.finding("EXC-01").measured["worst_ratio"] == math.inf


def test_speed_survives_the_round_trip():
    work = KernelWork(kernel="k", launches=2, instructions={"f32": 3}, mma_operations={"f16": 4})
    speed = Speed(
        kind="modelled",
        target="A100",
        probe="own float32 native seed 0",
        candidate_us=2.5,
        eager_us=5.0,
        kernels=(work,),
    )
    original = verdict(passed("CMP-01", "fine", probes=3.0), speed=speed, notes={"autotune": "no"})
    again = Verdict.from_json(json.loads(original.dumps()))
    assert again == original and again.speed.speedup == 2.0
    assert Verdict.from_json(json.loads(verdict(FAILURE).dumps())).speed is None


@pytest.mark.parametrize("wrong", [{"kind": "guessed"}, {"candidate_us": 0.0}, {"eager_us": -1.0}])
def test_impossible_times_are_refused(wrong):
    fields = {"kind": "modelled", "target": "A100", "probe": "", "candidate_us": 1.0}
    with pytest.raises(ValueError, match="time"):
        Speed(**{**fields, "eager_us": 1.0, **wrong})


def test_another_schema_version_is_refused():
    data = json.loads(verdict(FAILURE).dumps())
    data["schema_version"] = 99
    with pytest.raises(ValueError, match="schema 99 cannot be read"):
        Verdict.from_json(data)


def test_not_applicable_is_neither_charged_nor_counted():
    fine, nothing = passed("CMP-01", "fine", probes=1.0), not_applicable("CMP-02", "no gradients")
    assert verdict(fine, nothing).passed
    assert not verdict(nothing).passed
    assert not verdict(fine, FAILURE).passed


def test_an_error_voids_the_verdict():
    broken = verdict(passed("CMP-01", "fine", probes=1.0), errored("CMP-02", "broke"))
    assert broken.errored
    assert not broken.passed
    assert broken.failed_gates == ()


@pytest.mark.parametrize("channel", ["crash", "aliasing", "out_of_bounds", "device", "race"])
def test_a_forbidden_trace_rejects(channel):
    seen = verdict(passed("CMP-01", "fine", probes=1.0), channels={channel: "seen"})
    assert not seen.passed
    assert seen.rejected_by == (channel,)
    assert not seen.floor_passed


@pytest.mark.parametrize("kind", SANITIZER_KINDS)
def test_whatever_the_virtual_gpu_finds_rejects(kind):
    found = SanitizerFinding(kind=kind, kernel="k", opcode="ld", lanes=1, line=3, detail="there")
    probe = Probe(values="own")
    results = Results(
        task=Task(id="t", source=""),
        observations={probe: Observation(sanitizer=(found,))},
        truths={probe: Truth()},
    )
    seen = channels(results)
    assert len(seen) == 1 and set(seen) <= set(FATAL_CHANNELS) & set(FLOOR_CHANNELS)


def test_a_decoy_is_right_by_value():
    seen = verdict(passed("CMP-01", "fine", probes=1.0), channels={"decoy": "seen"})
    assert seen.passed


def test_the_floor_ignores_tolerances():
    value = failed("CMP-01", "off")
    assert verdict(value).floor_passed
    assert not verdict(FAILURE).floor_passed
    assert verdict(failed("EXC-01", "finite elements", worst_ratio=1e9)).floor_passed
    assert not verdict(failed("ORD-02", "two results", calls=5.0)).floor_passed
    assert not verdict(value, fault="does not load").floor_passed


def test_findings_cannot_be_empty_words():
    with pytest.raises(ValueError, match="needs a reason"):
        Finding(gate="CMP-01", status=Status.FAIL, reason="")
    with pytest.raises(ValueError, match="must show what it measured"):
        Finding(gate="CMP-01", status=Status.PASS, reason="fine")


def test_all_that_the_virtual_gpu_finds_has_a_name():
    assert set(FINDING_KINDS) == set(SANITIZER_KINDS)
