"""KernelBench's functions that load and compare modules; a candidate stays in its cell."""

from __future__ import annotations

import os

import pytest
import torch

from lethe_env import kernelbench
from lethe_env.kernelbench.models import CandidateError

from .conftest import candidate, problem, same

pytestmark = pytest.mark.xdist_group("kernelbench models")

LINEAR = problem(
    "return self.linear(x)",
    init="self.linear = nn.Linear(width, 8)",
    sizes="rows, width = 4, 40",
    settings="width",
)
WATCHING = candidate("return x * 2", head="seen = []\nrows = 1")


@pytest.fixture
def reference():
    context: dict = {}
    return kernelbench.load_original_model_and_inputs(LINEAR, context)


def check(original, new, get_inputs, **options):
    return kernelbench.run_and_check_correctness(
        original, new, get_inputs, {}, 3, device=torch.device("cpu"), **options
    )


def test_a_remote_model_has_the_weights_of_the_seed_and_the_precision_of_the_cast(reference):
    model_class, get_init_inputs, get_inputs = reference
    context = {"rows": 4}
    remote_class = kernelbench.load_custom_model(same(LINEAR), context)
    assert context == {"rows": 4, "ModelNew": remote_class}
    kernelbench.set_seed(42)
    original = model_class(*get_init_inputs())
    kernelbench.set_seed(42)
    remote = remote_class(*get_init_inputs())
    result = check(original, remote, get_inputs)
    assert result.correctness
    assert result.metadata["correctness_trials"] == "(3 / 3)"
    assert check(original, remote, get_inputs, precision=torch.bfloat16).correctness
    assert remote(get_inputs()[0].bfloat16()).dtype == torch.bfloat16


def test_a_difference_and_an_exception_are_named(reference):
    model_class, get_init_inputs, get_inputs = reference
    original = model_class(*get_init_inputs())
    other = check(original, model_class(*get_init_inputs()), get_inputs)
    assert other.metadata["correctness_issue"] == "Output mismatch"
    assert len(other.metadata["max_difference"]) == 3

    failing = kernelbench.load_custom_model(candidate("raise KeyError('no')"), {})()
    broken = check(original, failing, get_inputs)
    assert "KeyError" in broken.metadata["runtime_error"]


def test_a_candidate_neither_sees_nor_changes_the_context():
    context = {"rows": 7}
    kernelbench.load_custom_model(WATCHING, context)
    assert context["rows"] == 7
    assert "seen" not in context


def test_loading_reports_what_is_wrong():
    assert kernelbench.load_custom_model("def (", {}) is None
    assert kernelbench.load_original_model_and_inputs("def (", {}) is None
    with pytest.raises(CandidateError, match="subprocess"):
        kernelbench.load_custom_model("import subprocess\nclass ModelNew: pass", {})
    assert kernelbench.build_compile_cache(same(LINEAR)) == (True, "", None)
    code, printed, reason = kernelbench.build_compile_cache_with_capturing("x = 1")
    assert (code, printed) == (1, "")
    assert "ModelNew" in reason


def test_a_file_is_left_for_the_caller_to_delete():
    loaded, file = kernelbench.load_custom_model_with_tempfile(same(LINEAR))
    assert loaded(40)(torch.zeros(4, 40)).shape == (4, 8)
    kernelbench.graceful_eval_cleanup({}, torch.device("cpu"), file)
    assert not os.path.exists(file.name)


def test_metadata_helpers():
    odd = {"error": ValueError("x"), "deep": [{"dtype": torch.float32}], "n": 1}
    plain = kernelbench.check_metadata_serializable_all_types(odd)
    assert plain == {"error": "x", "deep": [{"dtype": "torch.float32"}], "n": 1}
    shallow = kernelbench.check_metadata_serializable({"eval_0": {"error": ValueError("x")}})
    assert shallow == {"eval_0": {"error": "x"}}
    registered = kernelbench.register_and_format_exception("e", "y" * 300, {}, truncate=True)
    assert registered == {"e": "y" * 197 + "..."}
    assert kernelbench.get_error_name(ValueError()) == "builtins.ValueError"
    assert kernelbench.get_tolerance_for_precision("bf16") == 1e-2
    assert kernelbench.get_tolerance_for_precision(torch.float32) == 1e-4
    with pytest.raises(ValueError, match="fp8"):
        kernelbench.get_torch_dtype_from_string("fp8")
    with pytest.raises(AssertionError):
        kernelbench.get_tolerance_for_precision(torch.float64)
