import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe_env.gates import battery
from lethe_env.gates.speed import Speed
from lethe_env.gates.verdict import (
    FATAL_CHANNELS,
    Finding,
    Verdict,
    errored,
    failed,
    not_applicable,
    not_asked,
    passed,
)
from lethe_env.reward import REWARDS, AllcloseReward, ContractReward, FloorReward, RewardShape
from lethe_env.reward import rewards as module

SHAPE = RewardShape()
FIXED = settings(derandomize=True, deadline=None, max_examples=100, database=None)
NUMERIC = ("CMP-01", "CMP-02", "CMP-03", "ORD-01", "ORD-03", "PRC-01", "PRC-02", "EXC-01", "EXC-02")

ratios = st.one_of(st.floats(1.0, 1e12), st.just(math.inf), st.just(math.nan))
shares = st.floats(0.0, 0.99)


@st.composite
def findings(draw, gate: str) -> Finding:
    kind = draw(st.sampled_from(["pass", "fail", "fail", "not_applicable"]))
    if kind == "not_applicable":
        return not_applicable(gate, "nothing to ask")
    if kind == "pass":
        return passed(gate, "fine", calls=3.0)
    measured = {"worst_ratio": draw(ratios)} if gate in NUMERIC else {"calls": 3.0}
    return failed(gate, "wrong", score=draw(shares), **measured)


@st.composite
def verdicts(draw) -> Verdict:
    channels = draw(st.lists(st.sampled_from([*FATAL_CHANNELS, "decoy"]), max_size=2))
    return Verdict(
        task={"id": "t"},
        source="x",
        findings=tuple(draw(findings(gate)) for gate in battery.GATE_NAMES),
        fault=draw(st.sampled_from(["", "", "", "not loadable"])),
        channels=dict.fromkeys(channels, "seen"),
        kernel=draw(st.sampled_from(["triton", "triton", "none", "decoy"])),
        allclose=draw(findings("allclose")),
    )


def with_finding(verdict: Verdict, finding: Finding) -> Verdict:
    rest = tuple(finding if f.gate == finding.gate else f for f in verdict.findings)
    return replace(verdict, findings=rest)


def solved() -> Verdict:
    return Verdict(
        task={"id": "t"},
        source="x",
        findings=tuple(passed(gate, "fine", calls=3.0) for gate in battery.GATE_NAMES),
        kernel="triton",
        allclose=passed("allclose", "fine", largest_difference=0.0),
        speed=Speed(kind="modelled", target="A100", probe="base", candidate_us=1.0, eager_us=1.0),
    )


@pytest.mark.parametrize("name", REWARDS)
@FIXED
@given(verdict=verdicts(), speedup=st.one_of(st.none(), st.floats()))
def test_rewards_are_finite_and_in_range(name, verdict, speedup):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "speedup", lambda _: speedup)
        value = REWARDS[name](SHAPE)(verdict)
    assert 0.0 <= value <= SHAPE.highest_solved


@FIXED
@given(verdict=verdicts(), worse=verdicts())
def test_a_pass_ranks_above_every_fail_at_any_speed(verdict, worse):
    speeds = {True: 1e-9, False: 1e9}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "speedup", lambda v: speeds[v.passed])
        best = ContractReward()(solved())
        value = ContractReward()(verdict)
    if not (verdict.passed and verdict.kernel == "triton"):
        assert value < best


@pytest.mark.parametrize("kind", [ContractReward, AllcloseReward])
def test_speed_comes_on_top_of_a_pass_and_only_there(kind):
    assert kind()(solved()) == SHAPE.solved
    wrong = with_finding(solved(), failed("CMP-01", "x"))
    wrong = replace(wrong, allclose=failed("allclose", "x"))
    slow = kind()(wrong)
    speed = Speed(kind="modelled", target="A100", probe="base", candidate_us=2.0, eager_us=8.0)
    assert kind()(replace(solved(), speed=speed)) == pytest.approx(
        SHAPE.solved + 2 * SHAPE.speed_weight
    )
    assert kind()(replace(wrong, speed=speed)) == slow < SHAPE.solved


@FIXED
@given(verdict=verdicts(), gate=st.sampled_from(NUMERIC), data=st.data())
def test_making_a_gate_better_never_lowers_the_reward(verdict, gate, data):
    low, high = sorted(data.draw(st.tuples(shares, shares)))
    near, far = sorted(data.draw(st.tuples(st.floats(1.0, 1e12), st.floats(1.0, 1e12))))
    value = [
        ContractReward()(with_finding(verdict, failed(gate, "x", score=share, worst_ratio=ratio)))
        for share, ratio in [(low, far), (low, near), (high, near)]
    ]
    assert value == sorted(value)


@FIXED
@given(verdict=verdicts(), index=st.integers(0, len(battery.GATE_NAMES) - 1))
def test_fixing_a_failing_gate_raises_the_reward(verdict, index):
    gate = battery.GATE_NAMES[index]
    verdict = replace(verdict, kernel="triton", fault="")
    before = with_finding(verdict, failed(gate, "x", score=0.99, worst_ratio=1.0, calls=1.0))
    after = with_finding(verdict, passed(gate, "fine", calls=1.0))
    assert ContractReward()(after) > ContractReward()(before)


@pytest.mark.parametrize("channel", FATAL_CHANNELS)
def test_a_forbidden_trace_costs_the_pass(channel):
    traced = replace(solved(), channels={channel: "seen"})
    assert SHAPE.base < ContractReward()(traced) <= SHAPE.partial_limit


@FIXED
@given(verdict=verdicts(), gate=st.sampled_from(battery.GATE_NAMES))
def test_a_harness_error_voids_every_reward(verdict, gate):
    void = with_finding(verdict, errored(gate, "broke"))
    assert [REWARDS[name](SHAPE)(void) for name in REWARDS] == [None, None, None]
    assert None not in [REWARDS[name](SHAPE)(verdict) for name in REWARDS]


@FIXED
@given(verdict=verdicts(), other=verdicts())
def test_allclose_does_not_look_at_the_contract(verdict, other):
    mixed = replace(verdict, findings=other.findings, fault=other.fault, channels=other.channels)
    assert AllcloseReward()(mixed) == AllcloseReward()(verdict)


@pytest.mark.parametrize("kernel", ["none", "decoy"])
def test_without_a_kernel_of_its_own_a_candidate_earns_the_base(kernel):
    verdict = replace(solved(), kernel=kernel)
    assert verdict.passed
    assert [REWARDS[name](SHAPE)(verdict) for name in REWARDS] == [SHAPE.base] * 3


def test_what_does_not_apply_is_left_out():
    half = with_finding(solved(), failed("CMP-01", "x", score=0.5, worst_ratio=1e3))
    fewer = half
    for gate in battery.GATE_NAMES[1:]:
        fewer = with_finding(fewer, not_applicable(gate, "no"))
    score = 0.9 * (0.5 * 0.5 + 0.5 * (1 - 3 / 6))
    room = SHAPE.partial_limit - SHAPE.base
    assert ContractReward()(fewer) == pytest.approx(SHAPE.base + room * (3 * score + 1) / 4)
    total = 3 + 2 + 2 + 0.5 + 0.5 + 7 + 1
    expected = SHAPE.base + room * (total - 3 + 3 * score) / total
    assert ContractReward()(half) == pytest.approx(expected)


def test_getting_further_before_the_first_failure_earns_more():
    early = late = with_finding(solved(), failed("EXC-01", "x", score=0.5))
    for gate in battery.GATE_NAMES[1:4]:
        early = with_finding(early, not_asked(gate, "EXC-01"))
    assert ContractReward()(early) < ContractReward()(late)
    known = sum(f.left_unasked for f in early.findings)
    assert known == 3 and not any(f.left_unasked for f in late.findings)


def test_nothing_that_runs_is_worth_nothing():
    never = with_finding(solved(), failed("RES-01", "no call returned anything", calls=0.0))
    unloadable = replace(solved(), fault="the source is not Python")
    for verdict in (never, unloadable):
        assert ContractReward()(verdict) == FloorReward()(verdict) == 0.0


def test_a_candidate_of_which_no_gate_knows_anything_earns_the_base():
    verdict = solved()
    for gate in battery.GATE_NAMES:
        verdict = with_finding(verdict, not_applicable(gate, "no"))
    assert ContractReward()(verdict) == SHAPE.base


def test_the_floor_asks_only_the_floor():
    inexact = with_finding(solved(), failed("CMP-01", "x", worst_ratio=9.0))
    leaking = with_finding(solved(), failed("EXC-01", "x", worst_ratio=math.inf))
    assert FloorReward()(inexact) == SHAPE.solved
    assert FloorReward()(leaking) == SHAPE.base


@pytest.mark.parametrize(
    ("speedup", "term"),
    [
        (None, -0.2),
        (math.nan, -0.2),
        (0.0, -0.2),
        (-1.0, -0.2),
        (0.5, -0.1),
        (1, 0),
        (4, 0.2),
        (1e9, 0.4),
        (math.inf, 0.4),
    ],
)
def test_speed_pays_by_the_doubling(speedup, term):
    assert SHAPE.speed_term(speedup) == pytest.approx(term)


def test_allclose_rejects_what_it_did_not_see():
    assert AllcloseReward()(replace(solved(), allclose=None)) == 0.0
    assert AllcloseReward()(replace(solved(), allclose=not_applicable("allclose", "no"))) == 0.0


@pytest.mark.parametrize(
    "fields",
    [
        {"base": 0.7},
        {"partial_limit": 0.8},
        {"speed_weight": 0.3},
        {"gate_weights": {"CMP-01": -1.0}},
        {"gate_weights": {"CMP-01": math.inf}},
        {"closeness_share": 1.5},
        {"failed_gate_limit": 1.0},
        {"closeness_decades": 0.0},
        {"slowest_doublings": 5.0},
        {"solved": math.nan},
    ],
)
def test_a_shape_that_would_reward_failing_is_refused(fields):
    with pytest.raises(ValueError, match="RewardShape"):
        RewardShape(**fields)
