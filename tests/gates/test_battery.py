import re
from dataclasses import replace

import pytest
import torch

from lethe_env.gates import battery
from lethe_env.gates.results import instantiate
from lethe_env.gates.verdict import Status
from lethe_env.tasks.model import ShapeFamily, Task
from lethe_env.tasks.probe import Probe

from ..doubling import DOUBLE

VALUE_GATES = ("CMP-01", "CMP-03", "ORD-01", "ORD-03", "PRC-01", "PRC-02", "EXC-01", "EXC-02")


def test_there_are_twelve_gates_in_order():
    assert battery.GATE_NAMES == (
        "CMP-01",
        "CMP-02",
        "CMP-03",
        "ORD-01",
        "ORD-02",
        "ORD-03",
        "PRC-01",
        "PRC-02",
        "EXC-01",
        "EXC-02",
        "RES-01",
        "RES-02",
    )


@pytest.mark.parametrize("gate", battery.GATES, ids=lambda gate: gate.NAME)
def test_a_gate_says_what_it_claims_catches_and_misses(gate):
    text = gate.__doc__
    assert text.startswith(f"{gate.NAME}: ")
    for heading in ("Claim:", "Catches:", "Misses:"):
        assert re.search(rf"^{heading} +\S", text, re.MULTILINE), heading


def test_the_reference_itself_passes_every_gate(row_sum, grade_in_process):
    findings = grade_in_process(row_sum)
    assert {name: f.status for name, f in findings.items()} == dict.fromkeys(
        battery.GATE_NAMES, Status.PASS
    ), {name: f.reason for name, f in findings.items() if f.status is not Status.PASS}


def test_what_two_dtypes_would_ask_is_asked_once(row_sum):
    task = replace(row_sum, dtypes=("float16",))
    planned = [Probe(dtype="float32"), Probe(dtype="float16"), Probe(dtype="bfloat16")]
    made = instantiate(task, planned, seed=5)
    assert [(probe.dtype, probe.seed) for probe in made] == [("float16", 5), ("bfloat16", 5)]
    assert len(instantiate(row_sum, planned, seed=5)) == 3


def test_a_task_in_half_types_is_asked_in_them(row_sum, grade_in_process):
    asked = set()

    def note(probe, seen):
        asked.add(probe.dtype)
        return seen

    task = replace(row_sum, dtypes=("float16", "bfloat16"))
    findings = grade_in_process(task, change=note)
    assert {finding.status for finding in findings.values()} == {Status.PASS}
    assert asked == {"float16", "bfloat16"}


@pytest.mark.parametrize("name", VALUE_GATES)
def test_a_gate_alone_catches_what_only_it_asks(row_sum, grade_in_process, corrupted, name):
    own = next(gate for gate in battery.GATES if name == gate.NAME)
    others = {probe for gate in battery.GATES if name != gate.NAME for probe in gate.plan(row_sum)}
    exclusive = set(own.plan(row_sum)) - others
    assert exclusive, f"{name} asks nothing that another gate does not ask"
    findings = grade_in_process(
        row_sum, change=lambda probe, seen: corrupted(seen) if probe in exclusive else seen
    )
    failed = [gate for gate, finding in findings.items() if finding.status is Status.FAIL]
    assert failed == [name]
    evidence = findings[name].evidence[0]
    assert evidence.elements > 0
    assert abs(evidence.got - evidence.expected) > evidence.allowed or evidence.got != evidence.got
    assert findings[name].score < 1


def test_a_waived_gate_is_not_judged_and_says_why(row_sum, grade_in_process):
    task = Task.from_json({**row_sum.to_json(), "waived": {"PRC-02": "because"}})
    finding = grade_in_process(task)["PRC-02"]
    assert finding.status is Status.NOT_APPLICABLE
    assert finding.reason == "waived by the task: because"


def test_an_operation_without_a_reduction_is_not_asked_about_order(grade_in_process, make_task):
    task = make_task(DOUBLE, family=ShapeFamily(base={"n": 37}, long={"n": 99}))
    findings = grade_in_process(task)
    for name in ("ORD-01", "ORD-03", "PRC-02"):
        assert findings[name].status is Status.NOT_APPLICABLE
        assert findings[name].reason == "the operation has no reduction"
    assert findings["CMP-02"].reason == "the task asks for no gradients"


class _Half(torch.nn.Module):
    """A running total kept in a half type, whatever comes in."""

    def __init__(self, module, dtype):
        super().__init__()
        self.scale, self.dtype = module.scale, dtype

    def forward(self, x):
        terms = (x * self.scale).to(self.dtype)
        total = torch.zeros(x.shape[0], dtype=self.dtype)
        for block in terms.split(16, dim=-1):
            total = total + block.float().sum(-1).to(self.dtype)
        return total.to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_running_total_fails_the_accumulator_gate(row_sum, grade_in_process, dtype):
    findings = grade_in_process(row_sum, lambda module, _: _Half(module, dtype))
    assert findings["PRC-02"].status is Status.FAIL


class _Reversed(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.scale = module.scale

    def forward(self, x):
        terms = (x.float() * self.scale.float()).flip(-1)
        total = torch.zeros(x.shape[0])
        for column in terms.split(64, dim=-1):
            total = total + column.sum(-1)
        return total.to(x.dtype)


def test_another_order_with_a_float32_total_passes_everything(row_sum, grade_in_process):
    findings = grade_in_process(row_sum, lambda module, _: _Reversed(module))
    assert [g for g, f in findings.items() if f.status is Status.FAIL] == []


class _Severed(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.inner = module
        self.scale = module.scale

    def forward(self, x):
        return self.inner(x).detach() + 0 * x.sum()


def test_wrong_gradients_fail_the_gradient_gate_alone(row_sum, grade_in_process):
    findings = grade_in_process(row_sum, lambda module, _: _Severed(module))
    failed = [gate for gate, finding in findings.items() if finding.status is Status.FAIL]
    assert "CMP-02" in failed
