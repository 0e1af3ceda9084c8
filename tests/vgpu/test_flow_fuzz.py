"""Random programs with control flow and memory agree with the executor, and it can tell."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import flow_fuzz, fuzz
from .test_differential import run_compiled

BATCH = 12


@settings(
    max_examples=2,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**32))
def test_random_programs_agree(seed):
    assert flow_fuzz.disagreements(BATCH, Random(seed), run_compiled) == []


def test_as_many_programs_as_asked_for_agree(request):
    """`--fuzz-programs 10000` takes about a quarter of an hour of processor time."""
    count = request.config.getoption("--fuzz-programs")
    if not count:
        pytest.skip("runs with --fuzz-programs")
    random = Random(1)
    for _ in range(-(-count // BATCH)):
        assert flow_fuzz.disagreements(BATCH, random, run_compiled) == []


@pytest.mark.parametrize(("right", "wrong"), [("xor.b32", "or.b32"), ("@!", "@")])
def test_a_wrong_instruction_is_told_with_its_program(right, wrong):
    def run_other(text, inputs, results):
        fuzz.run_executor(text.replace(right, wrong), inputs, results)

    found = flow_fuzz.disagreements(20, Random(3), run_other)
    assert found
    assert all("of lane" in line and "mul.lo.u32 %at" in line for line in found)
