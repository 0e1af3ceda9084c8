"""`lethe controls --blackwell`: right gradients pass, wrong ones are told by the gate's name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
import triton
import typer

from lethe_env import native_command, native_controls
from lethe_env.command_line import FAILED, PASSED, UsageError
from lethe_env.gates.battery import GATE_NAMES
from lethe_env.gates.oracle import Oracle
from lethe_env.gates.verdict import Verdict, failed, not_applicable, passed
from lethe_env.kernels import cute_dsl
from lethe_env.kernels.footprint import Footprint
from lethe_env.kernels.gated_delta.blackwell import backward_pass
from lethe_env.native_controls import MemberReport, StageReport, member_reports, stage_reports
from lethe_env.vgpu.driver import VirtualDriver

pytestmark = pytest.mark.xdist_group("blackwell")

needs_dsl = pytest.mark.skipif(not cute_dsl.is_installed(), reason=cute_dsl.MISSING)
NATIVE = backward_pass.run_native_backward


@pytest.fixture(autouse=True)
def no_driver(monkeypatch):
    """Whatever becomes Triton's driver is not that of other tests."""
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    monkeypatch.setattr(triton.runtime.driver, "_active", None)


@pytest.fixture
def reports(monkeypatch):
    """Linear attention with 64 value channels and one token: the truth takes no time."""
    monkeypatch.setattr(native_controls, "LENGTHS", (1,))
    monkeypatch.setattr(native_controls, "VALUES", (64,))
    driver = VirtualDriver()
    driver.activate()

    def made():
        oracle = Oracle(samples=4)
        (member,) = member_reports(driver, oracle, "/linear_attention", lambda text: None)
        return member, list(stage_reports())

    return made


@needs_dsl
def test_the_native_backward_passes(reports):
    member, stages = reports()
    assert member.faults == ()
    assert 0 < member.worst_ratio < 1
    assert 0 < member.worst_relative_error < native_controls.RELATIVE_LIMIT
    assert (member.gradients, member.replays) == (3, len(native_controls.SCHEDULES))
    assert [(stage.stage, stage.made_for) for stage in stages] == [
        ("reverse_state_scan", "key_dim 128, value_dim 64"),
        ("transform_adjoint", "value_dim 64, gate 0"),
        ("token_gradients", "tile 64"),
    ]
    assert all(stage.faults == () and stage.shared_bytes > 0 for stage in stages)


def scaled(*arguments):
    found = NATIVE(*arguments)
    return found._replace(k=found.k * 1.01)


def random(*arguments):
    found = NATIVE(*arguments)
    return found._replace(q=found.q * (1 + 1e-3 * torch.rand_like(found.q)))


def mixing_heads(*arguments):
    found = NATIVE(*arguments)
    return found._replace(v=found.v + found.v.mean(1, keepdim=True) * 0)


@needs_dsl
@pytest.mark.parametrize(
    "backward, fault",
    [
        (scaled, "CMP-02: "),
        (random, "ORD-02: other bytes"),
        (mixing_heads, "EXC-01: NaN in another head changes grad input[2]"),
    ],
)
def test_a_wrong_backward_is_told_by_the_gates_question(backward, fault, reports, monkeypatch):
    monkeypatch.setattr(backward_pass, "run_native_backward", backward)
    member, _ = reports()
    assert any(text.startswith(fault) for text in member.faults), member.faults


GOOD = MemberReport("LA", 64, 3, 0.2, 4e-4, 3, ())
FOOTPRINT = Footprint(96, 0, (128,), (128,), 1)
KERNEL = StageReport("reverse_state_scan", "value_dim 64, erases", FOOTPRINT, 49152, 128)


def verdict(first):
    """Of a candidate that passes all other gates."""
    rest = [passed(name, "well", probes=1.0) for name in GATE_NAMES[1:]]
    return Verdict(task={}, source="", findings=(first, *rest))


def run(monkeypatch, member, judged=None, **options):
    judged = judged or verdict(not_applicable("CMP-01", "nothing to ask"))
    monkeypatch.setattr(native_command, "member_verdicts", lambda *_: [("LA", judged)])
    monkeypatch.setattr(cute_dsl, "is_installed", lambda: True)
    monkeypatch.setattr(native_command, "member_reports", lambda *_: [member] if member else [])
    monkeypatch.setattr(native_command, "stage_reports", lambda: [KERNEL])
    with pytest.raises(typer.Exit) as left:
        native_command.check_blackwell("auto", "", **options)
    return left.value.exit_code


def test_json_says_everything_and_the_exit_code_whether_it_is_well(monkeypatch, capsys):
    assert run(monkeypatch, GOOD, as_json=True) == PASSED
    content = json.loads(capsys.readouterr().out)
    assert content["members"][0]["worst_ratio"] == 0.2
    assert content["kernels"][0]["footprint"]["registers"] == 96
    assert content["verdicts"]["LA"]["passed"]
    bad = replace(GOOD, faults=("CMP-02: far off",))
    assert run(monkeypatch, bad, as_json=False) == FAILED
    assert "LA, V = 64: CMP-02: far off" in capsys.readouterr().out
    assert run(monkeypatch, GOOD, verdict(failed("CMP-01", "so it is")), as_json=False) == FAILED
    assert "LA: CMP-01: so it is" in capsys.readouterr().out


def test_what_cannot_be_asked_is_said(monkeypatch):
    with pytest.raises(UsageError, match="on the virtual GPU"):
        monkeypatch.setattr(cute_dsl, "is_installed", lambda: True)
        native_command.check_blackwell("cuda", "", as_json=False)
    monkeypatch.setattr(cute_dsl, "is_installed", lambda: False)
    with pytest.raises(UsageError, match=r"lethe_env\[blackwell\]"):
        native_command.check_blackwell("auto", "", as_json=False)
