"""The grader end to end on small tasks: whose fault it is, and that the next one is unharmed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lethe_env.gates.kernelbench_rule import Rule
from lethe_env.gates.verdict import Status
from lethe_env.grader import Grader, Vouched
from lethe_env.service.jobs import Job
from lethe_env.tasks.model import ShapeFamily, Task, TaskError
from lethe_env.tasks.observation import KernelResources

from .doubling import DOUBLE

FAMILY = ShapeFamily(base={"n": 37}, vary={"n": (1, 33)}, long={"n": 99})
HONEST = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + x
"""


def candidate(body: str, head: str = "") -> str:
    lines = "\n        ".join(body.splitlines())
    return f"""
import torch
{head}
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {lines}
"""


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(id="test/double", source=DOUBLE, op_class="elementwise", family=FAMILY)


@pytest.fixture(scope="module")
def quick():
    with Grader(device="interpreter", call_seconds=1.0, cache=None) as grader:
        yield grader


@pytest.fixture(autouse=True)
def the_next_candidate_is_unharmed(request, quick, task):
    yield
    if "quick" in request.fixturenames:
        assert quick.grade(task, HONEST).passed


NEWER = """
import torch, triton, triton.language as tl
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    narrow = v.to(tl.float8e4nv)  # which sm_80 does not have
    tl.store(out + i, v + v, mask=i < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        if torch.cuda.get_device_capability() != (9, 0):
            raise RuntimeError("an older GPU")
        out = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
        return out
"""


def test_kernels_run_as_for_another_architecture(task):
    with Grader(device="vgpu", architecture=90, targets=(), cache=None) as grader:
        verdict = grader.grade(task, NEWER)
    assert verdict.fault == ""
    assert not [f.evidence for f in verdict.findings if f.status == Status.FAIL]
    assert verdict.environment["architecture"] == "sm_90"
    assert verdict.speed.target == "H100"


def test_an_unknown_architecture_is_told(task):
    with (
        pytest.raises(ValueError, match="unknown architecture 75; known: 80, 90, 100"),
        Grader(device="vgpu", architecture=75) as grader,
    ):
        grader.grade(task, HONEST)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("def f(:", "is not Python: line 1"),
        ("x = 1", "no class ModelNew"),
        ("import subprocess\nclass ModelNew: pass", "subprocess"),
        ("import no_such_package\nclass ModelNew: pass", "no_such_package"),
        ("raise RuntimeError('boom')\nclass ModelNew: pass", "boom"),
        ("while True: pass\nclass ModelNew: pass", "no answer within"),
    ],
)
def test_what_cannot_be_loaded_is_a_fault_of_the_candidate(task, source, sentence):
    from lethe_env.cell import Limits

    with Grader(device="interpreter", limits=Limits(load_seconds=1.5), cache=None) as grader:
        verdict = grader.grade(task, source)
        assert grader.grade(task, HONEST).passed
    assert sentence in verdict.fault
    assert "Traceback" not in verdict.fault
    assert "\n" not in verdict.fault
    assert not verdict.passed
    assert not verdict.errored
    assert {finding.status for finding in verdict.findings} == {Status.FAIL}


@pytest.mark.parametrize(
    ("body", "head", "sentence"),
    [
        ("while True: pass", "", "no answer within"),
        ("return torch.empty(25 * 1024**3)", "", "memory"),
        ("raise KeyError('x')", "", "KeyError"),
        ("raise SystemExit(0)", "", "asked to exit with 0"),
        ("return torch.ones(1).storage().fill_", "", "output"),
        ("return self.forward(x)", "", "recursion"),
        ("return 'text'", "", "str"),
    ],
)
def test_a_failing_call_is_one_clear_sentence(quick, task, body, head, sentence):
    verdict = quick.grade(task, candidate(body, head))
    assert not verdict.passed
    assert not verdict.errored
    reason = verdict.finding("CMP-01").reason
    assert sentence.lower() in reason.lower()
    assert "Traceback" not in reason


def test_calls_that_take_too_long_together_are_not_made(task):
    from lethe_env.cell import Limits

    limits = Limits(verdict_seconds=0.5)
    with Grader(device="interpreter", limits=limits, cache=None) as grader:
        verdict = grader.grade(task, candidate("time.sleep(0.2)\nreturn x + x", head="import time"))
    assert not verdict.passed
    assert not verdict.errored
    assert "0.5 seconds together" in verdict.finding("ORD-02").evidence[0].note


def test_a_wrong_number_of_arguments_names_the_line_or_the_call(quick, task):
    source = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self): return 0"
    verdict = quick.grade(task, source)
    assert "positional argument" in verdict.finding("CMP-01").reason


def test_a_constructor_of_another_arity_is_the_candidates_fault(quick, task):
    source = HONEST.replace(
        "def forward", "def __init__(self, size):\n        pass\n    def forward"
    )
    assert "size" in quick.grade(task, source).finding("CMP-01").reason


def test_a_crash_by_signal_is_a_channel_and_breaks_the_floor(quick, task):
    crash = """
import torch, triton
import triton.language as tl

@triton.jit
def stray(x_ptr, y_ptr):
    tl.store(y_ptr, tl.load(x_ptr + (1 << 44)))

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        stray[(1,)](x, y)
        return y
"""
    verdict = quick.grade(task, crash)
    assert "SIGSEGV" in verdict.channels["crash"]
    assert not verdict.floor_passed


def test_plain_torch_is_judged_and_said_to_launch_nothing(quick, task):
    verdict = quick.grade(task, HONEST)
    assert verdict.kernel == "none"
    assert verdict.environment["device"] == "interpreter"
    assert verdict.environment["containment"] != "not opened"
    assert verdict.finding("RES-02").status is Status.NOT_APPLICABLE
    assert verdict.allclose.status is Status.PASS


def test_two_verdicts_of_one_candidate_are_equal_but_for_the_time(quick, task):
    wrong = candidate("return x * 2.0001")
    first, second = (quick.grade(task, wrong).to_json() for _ in range(2))
    for verdict in (first, second):
        del verdict["time_s"]
    assert first == second


def test_another_seed_asks_other_questions(task):
    wrong = candidate("return x * 2.0001")
    with Grader(device="interpreter", seed=5, cache=None) as grader:
        verdict = grader.grade(task, wrong)
    evidence = verdict.finding("CMP-01").evidence[0]
    assert evidence.probe["seed"] >= 5
    assert not verdict.passed


def test_a_reference_that_fails_is_the_tasks_fault(quick):
    broken = Task(id="b", source=DOUBLE.replace("x * 2", "x.nothing()"), family=FAMILY)
    with pytest.raises(TaskError, match="the reference fails"):
        quick.grade(broken, HONEST)


def test_a_task_that_is_not_there_is_named(quick):
    with pytest.raises(TaskError, match="no task named unknown/problem"):
        quick.grade("unknown/problem", HONEST)


def test_a_random_reference_is_recognised_and_not_compared(quick):
    source = DOUBLE.replace("x * 2", "torch.nn.functional.dropout(x, 0.5)")
    task = Task(id="d", source=source, family=FAMILY)
    verdict = quick.grade(task, HONEST)
    assert verdict.failed_gates == ()
    assert "random" in verdict.finding("CMP-01").reason


def test_a_refused_dtype_is_not_charged_unless_demanded(quick, task):
    refusing = candidate(
        "if x.dtype != torch.float32:\n"
        "    raise TypeError(f'float32 only, not {x.dtype}')\n"
        "return x + x"
    )
    assert quick.grade(task, refusing).passed
    demanding = Task.from_json({**task.to_json(), "dtypes": ["float32", "float16"]})
    verdict = quick.grade(demanding, refusing)
    assert verdict.failed_gates == ("PRC-01",)


def test_outputs_of_every_kind_are_compared(quick):
    source = DOUBLE.replace(
        "return x * 2", "return {'twice': x * 2, 'more': (x.sum(), x.argmax())}"
    )
    task = Task(id="t", source=source, family=FAMILY)
    honest = candidate("return {'twice': x + x, 'more': (x.sum(), x.argmax())}")
    assert quick.grade(task, honest).passed
    wrong = candidate("return {'twice': x + x, 'more': (x.sum(), x.argmin())}")
    evidence = quick.grade(task, wrong).finding("CMP-01").evidence[0]
    assert evidence.path == "output['more'][1]"
    missing = candidate("return {'twice': x + x}")
    assert "missing" in quick.grade(task, missing).finding("RES-01").reason


def test_a_view_is_aliasing_only_if_the_reference_returns_none(quick, task):
    viewing = Task(id="v", source=DOUBLE.replace("x * 2", "x.view(1, -1)"), family=FAMILY)
    assert quick.grade(viewing, candidate("return x.view(1, -1)")).passed
    identity = Task(id="i", source=DOUBLE.replace("x * 2", "x.clone()"), family=FAMILY)
    verdict = quick.grade(identity, candidate("return x"))
    assert "aliasing" in verdict.channels
    assert "ORD-02" in verdict.failed_gates


def test_buffers_are_restored_between_calls(quick):
    source = """
import torch
n, c = 9, 3
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(c)
    def forward(self, x):
        self.norm.train()
        y = self.norm(x)
        return y, self.norm.running_mean.clone()
def get_inputs():
    return [torch.randn(n, c)]
def get_init_inputs():
    return []
"""
    task = Task(id="bn", source=source, family=ShapeFamily(base={"n": 9}, long={"n": 50}))
    assert quick.grade(task, source.replace("Model(", "ModelNew(")).failed_gates == ()


NORMALISED = """
import torch
class Model(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)
    def forward(self, x):
        return self.norm(x)
channels = 8
def get_inputs():
    return [torch.rand(16, channels)]
def get_init_inputs():
    return [channels]
"""
STORED = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)
    def forward(self, x):
        assert not self.training
        norm = self.norm
        scale = norm.weight.float() / torch.sqrt(norm.running_var.float() + norm.eps)
        return ((x.float() - norm.running_mean.float()) * scale + norm.bias.float()).to(x.dtype)
"""


@pytest.mark.parametrize("evaluation_mode", [False, True])
def test_a_corpus_may_call_modules_in_evaluation_mode(quick, evaluation_mode):
    """What normalises with stored statistics is right in that mode alone."""
    family = ShapeFamily(base={"channels": 8})
    task = Task(id="x/y", source=NORMALISED, family=family, evaluation_mode=evaluation_mode)
    verdict = quick.grade(task, STORED)
    assert verdict.passed is evaluation_mode, verdict.render()


OURS = """
import torch
from lethe_env.grader import cache_directory
class ModelNew(torch.nn.Module):
    def forward(self, x):
        cache_directory()
        return x + x
"""
VOUCHED = Vouched("lethe_env.grader:cache_directory")


def test_a_source_of_ours_imports_what_was_prepared_and_stays_confined(task):
    peeping = OURS.replace("cache_directory()\n", "open(torch.__file__, 'w')\n")
    with Grader(device="interpreter", cache=None, vouched=VOUCHED) as grader:
        assert grader.grade(task, OURS).passed
        assert "PermissionError" in grader.grade(task, peeping).finding("CMP-01").reason


@pytest.mark.parametrize("rule", [None, Rule()])
def test_a_policys_source_does_not(quick, task, rule):
    (verdict,) = quick.grade_many([Job(task, OURS, rule)])
    assert "the import of `lethe_env` is not allowed in a candidate" in str(verdict.to_json())
    assert not verdict.passed and not verdict.errored


def test_kernels_of_ours_that_are_not_tritons_are_held_to_the_limits(task):
    greedy = KernelResources(kernel="mine", target="sm_100", tensor_memory_columns=544)
    with Grader(
        device="interpreter", cache=None, vouched=replace(VOUCHED, resources=(greedy,))
    ) as grader:
        finding = grader.grade(task, OURS).finding("RES-02")
    assert finding.status is Status.FAIL and "544 tensor-memory columns" in finding.reason
