"""The entry point: signature, statuses, and what the result offers its callers."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace

import pytest
import torch

from lethe_env import kernelbench
from lethe_env.gates.kernelbench_rule import Rule
from lethe_env.gates.speed import Speed
from lethe_env.kernelbench import KernelExecResult, eval_kernel_against_ref
from lethe_env.kernelbench.backends import BACKENDS, missing
from lethe_env.kernelbench.evaluation import Settings, evaluate_many, task_of
from lethe_env.kernelbench.result import CANNOT_RUN_HERE, NOT_JUDGED, add_times

from ..env.conftest import GOOD, LUCKY, VOID, FakeVerifier
from .conftest import problem, same

DOUBLE = problem("return x * 2", sizes="rows, width = 4, 40")

THEIRS = [
    ("original_model_src", inspect.Parameter.empty),
    ("custom_model_src", inspect.Parameter.empty),
    ("seed_num", 42),
    ("num_correct_trials", 1),
    ("num_perf_trials", 10),
    ("measure_performance", False),
    ("timing_method", "cuda_event"),
    ("verbose", False),
    ("build_dir", None),
    ("device", None),
    ("backend", "cuda"),
    ("precision", torch.float32),
    ("check_for_excessive_speedup", True),
    ("excessive_speedup_threshold", 10),
]


@pytest.fixture
def verifier():
    return FakeVerifier()


def ask(verifier, source, **options):
    return eval_kernel_against_ref(DOUBLE, source, verifier=verifier, **options)


def test_the_parameters_are_those_of_kernelbench_and_ours_are_keywords():
    parameters = inspect.signature(eval_kernel_against_ref).parameters.values()
    assert [(p.name, p.default) for p in parameters if p.kind is not p.KEYWORD_ONLY] == THEIRS


def test_every_public_name_is_there():
    for name in kernelbench.__all__:
        assert callable(getattr(kernelbench, name)), name


def test_the_contract_decides_unless_the_rule_is_asked_for(verifier):
    contract = ask(verifier, LUCKY)
    rule = ask(verifier, LUCKY, check="kernelbench")
    assert (contract.correctness, rule.correctness) == (False, True)
    assert contract.metadata["correctness_issue_name"] == "EXC-01"
    assert contract.metadata["contract"]["passed"] is False
    asked = [job.rule for batch in verifier.batches for job in batch]
    assert asked[0] is None
    assert asked[1].trials == 1


def test_the_rule_is_asked_with_what_the_caller_chose(verifier):
    ask(
        verifier,
        GOOD,
        check="kernelbench",
        seed_num=7,
        num_correct_trials=3,
        precision=torch.bfloat16,
        tolerance=0.01,
    )
    (job,) = verifier.batches[0]
    rule = job.rule
    assert (rule.seed, rule.trials, rule.precision, rule.limit) == (7, 3, "bfloat16", 0.01)
    assert job.task.dtypes == ("bfloat16",)


def test_a_precision_takes_the_place_of_float32_alone(verifier):
    task = replace(task_of("double", DOUBLE), dtypes=("float32", "bfloat16"))
    settings = Settings(rule=Rule(precision="float16"))
    evaluate_many([(task, GOOD)], settings, verifier)
    (job,) = verifier.batches[0]
    assert job.task.dtypes == ("float16", "bfloat16")


def test_what_the_harness_fails_to_judge_is_not_wrong(verifier):
    result = ask(verifier, VOID)
    assert not result.judged
    assert result.metadata["status"] == NOT_JUDGED
    assert result.metadata["error"]


@pytest.mark.parametrize("broken", ["def (", "import torch", DOUBLE.replace("x * 2", "x.no()")])
def test_a_reference_at_fault_is_a_result_that_says_so(verifier, broken):
    result = eval_kernel_against_ref(broken, GOOD, verifier=verifier)
    assert result.metadata["status"] == NOT_JUDGED
    assert "reference" in result.metadata["error"]
    assert verifier.batches == []


@pytest.mark.parametrize(
    "line",
    [
        "from torch.utils.cpp_extension import load_inline",
        "import torch.utils.cpp_extension as extension",
        "import torch\nload = torch.utils.cpp_extension.load_inline",
        "import tilelang.language as T",
        "import cutlass.cute as cute",
        "import cupy",
    ],
)
def test_what_this_machine_cannot_run_is_not_wrong_and_not_asked(verifier, line):
    result = ask(verifier, f"{line}\n{same(DOUBLE)}")
    assert result.metadata["status"] == CANNOT_RUN_HERE
    assert not result.judged
    assert verifier.batches == []


@pytest.mark.parametrize("backend", [*BACKENDS, "cuTile"])
def test_a_backend_by_name_forbids_nothing(verifier, backend):
    assert ask(verifier, GOOD, backend=backend).correctness
    assert missing(same(DOUBLE), device="vgpu") == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": torch.float64}, "precision"),
        ({"check": "strict"}, "strict"),
        ({"num_correct_trials": 0}, "trial"),
    ],
)
def test_wrong_usage_is_said(verifier, options, words):
    with pytest.raises(ValueError, match=words):
        ask(verifier, GOOD, **options)


def test_many_results_come_in_order(verifier):
    task = task_of("problem", DOUBLE)
    pairs = [(task, GOOD), ("no such reference", GOOD), (task, LUCKY), (task, "import cupy")]
    results = evaluate_many(pairs, Settings(), verifier)
    assert [result.correctness for result in results] == [True, False, False, False]
    assert [result.judged for result in results] == [True, False, True, False]


class TestResult:
    """What consumers of KernelBench's pydantic model use."""

    def test_defaults_mean_that_nothing_was_found_out(self):
        result = KernelExecResult()
        assert (result.compiled, result.correctness, result.runtime) == (False, False, -1.0)
        assert (result.ref_runtime, result.metadata, result.runtime_stats) == (-1.0, {}, {})

    def test_it_can_be_dumped_and_rebuilt(self):
        result = KernelExecResult(compiled=True, metadata={"hardware": "x"}, runtime=0.5)
        assert json.loads(result.model_dump_json()) == result.model_dump() == result.dict()
        assert json.loads(result.json()) == result.dict()
        assert KernelExecResult.model_validate(result.model_dump()) == result
        assert result.model_copy(update={"runtime": 1.0}) == replace(result, runtime=1.0)

    @pytest.fixture
    def correct(self):
        metadata = {"hardware": "H200", "device": "cuda:0"}
        return KernelExecResult(compiled=True, correctness=True, metadata=metadata)

    def test_a_modelled_time_is_no_runtime(self, correct):
        speed = Speed(kind="modelled", target="A100", probe="p", candidate_us=2.0, eager_us=4.0)
        timed = add_times(correct, speed, 10)
        assert (timed.runtime, timed.ref_runtime, timed.runtime_stats) == (-1.0, -1.0, {})
        assert timed.metadata["modelled_speed"]["kind"] == "modelled"
        assert timed.metadata["modelled_speed"]["speedup"] == 2.0

    def test_a_measured_time_is_in_milliseconds_with_three_digits(self, correct):
        speed = Speed(
            kind="measured", target="H200", probe="p", candidate_us=12.3456, eager_us=400.0
        )
        timed = add_times(correct, speed, 10)
        assert (timed.runtime, timed.ref_runtime) == (0.0123, 0.4)
        assert timed.metadata["excessive_speedup"] is True
        assert set(timed.runtime_stats) == {
            *("mean", "std", "min", "max", "num_trials", "hardware", "device")
        }
        assert "excessive_speedup" not in add_times(correct, speed, None).metadata

    def test_a_wrong_kernel_has_no_time(self, correct):
        speed = Speed(kind="measured", target="H200", probe="p", candidate_us=1.0, eager_us=1.0)
        wrong = replace(correct, correctness=False)
        assert add_times(wrong, speed, 10) == wrong
