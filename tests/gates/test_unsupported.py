import pytest

from lethe_env.gates import battery, kernelbench_rule, unsupported
from lethe_env.gates.channels import channels
from lethe_env.gates.results import Results
from lethe_env.gates.truth import Truth
from lethe_env.gates.verdict import Status, Verdict, failed, passed
from lethe_env.tasks.model import ShapeFamily
from lethe_env.tasks.observation import Fault, Observation, SanitizerFinding

SOURCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.rand(4)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def results(make_task):
    task = make_task(SOURCE, family=ShapeFamily())
    probes = battery.plan(task, 0)
    observations = {probe: Observation() for probe in probes}
    return Results(task=task, truths={}, observations=observations)


def verdict_of(results):
    findings = tuple(failed(name, "wrong values") for name in battery.GATE_NAMES)
    allclose = passed(kernelbench_rule.NAME, "fine", worst_ratio=0.0)
    return Verdict(task={}, source="", findings=findings, allclose=allclose)


def test_only_gates_that_needed_the_probe_are_void(results):
    gate = battery.GATES[0]
    probe = results.asked(gate.plan(results.task))[0]
    fault = Fault(kind="unsupported", phase="forward", message="unsupported: vadd4", line=3)
    observations = {**results.observations, probe: Observation(fault=fault)}
    seen = Results(task=results.task, truths={}, observations=observations)
    verdict = unsupported.void(verdict_of(seen), seen)
    for module, finding in zip(battery.GATES, verdict.findings, strict=True):
        needed = probe in seen.asked(module.plan(seen.task))
        assert finding.status is (Status.ERROR if needed else Status.FAIL)
    assert verdict.errored and verdict.findings[0].reason == "unsupported: vadd4 (line 3)"


def test_other_faults_void_nothing(results):
    probe = next(iter(results.observations))
    fault = Fault(kind="exception", phase="forward", message="no")
    observations = {**results.observations, probe: Observation(fault=fault)}
    seen = Results(task=results.task, truths={}, observations=observations)
    assert not unsupported.void(verdict_of(seen), seen).errored


@pytest.mark.parametrize(
    ("kind", "channel"),
    [
        ("out_of_bounds", "out_of_bounds"),
        ("uninitialised_read", "uninitialised_read"),
        ("race", "race"),
        ("barrier", "race"),
    ],
)
def test_what_the_sanitizer_saw_becomes_a_forbidden_trace(results, kind, channel):
    found = SanitizerFinding(
        kind=kind, kernel="copy", opcode="ld.global.b32", line=7, lanes=4, detail="byte 8 of x"
    )
    probe = next(iter(results.observations))
    truths = {probe: Truth()}
    seen = Results(
        task=results.task, truths=truths, observations={probe: Observation(sanitizer=(found,))}
    )
    text = channels(seen)[channel]
    assert "copy in line 7" in text and "4 threads" in text and "byte 8 of x" in text
    assert channel in Verdict(task={}, source="", findings=(), channels={channel: text}).rejected_by
