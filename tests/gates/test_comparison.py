import math

import pytest
import torch

from lethe_env.gates.comparison import compare, refuses_dtype
from lethe_env.gates.truth import TruthTensor
from lethe_env.tasks.observation import Fault, OutputTensor
from lethe_env.tasks.probe import Probe

NAN, INF = math.nan, math.inf


def truth(values, allowed=0.5, charged=None):
    tensor = torch.tensor(values, dtype=torch.float64)
    return TruthTensor(
        path="output",
        dtype=torch.float32,
        values=tensor,
        allowed=torch.full_like(tensor, allowed),
        allowed_subnormal=torch.zeros_like(tensor),
        charged=torch.ones_like(tensor, dtype=torch.bool) if charged is None else charged,
        working=tensor.float(),
    )


def outcome(values, got, **fields):
    return compare(
        Probe(), truth(values, **fields), OutputTensor(path="output", data=torch.tensor(got))
    )


@pytest.mark.parametrize(
    ("expected", "got", "fine"),
    [
        (1.0, 1.5, True),
        (1.0, 1.51, False),
        (1.0, NAN, False),
        (1.0, INF, False),
        (NAN, NAN, True),
        (NAN, 0.0, False),
        (INF, INF, True),
        (INF, -INF, False),
        (INF, 3.4e38, False),
        (-INF, NAN, False),
    ],
)
def test_values_within_the_bound_and_specials_exactly(expected, got, fine):
    assert (outcome([0.0, expected], [0.0, got]).evidence is None) == fine


@pytest.mark.parametrize(
    ("expected", "got"), [(NAN, 0.0), (INF, 3.4e38), (INF, -INF), (1.0, NAN), (1.0, INF)]
)
def test_no_multiple_of_the_bound_excuses_a_special_value(expected, got):
    result = outcome([1.0, expected], [4.0, got])
    assert result.worst_ratio == INF
    assert result.evidence.index == (1,)


def test_the_worst_element_is_the_evidence():
    result = outcome([1.0, 2.0, 3.0], [1.0, 4.0, 9.0])
    assert result.evidence.index == (2,)
    assert result.evidence.got == 9.0
    assert result.evidence.expected == 3.0
    assert result.evidence.allowed == 0.5
    assert result.evidence.elements == 2
    assert result.worst_ratio == 12.0


def test_an_element_that_is_not_charged_cannot_fail():
    charged = torch.tensor([True, False])
    assert outcome([1.0, 1.0], [1.0, NAN], charged=charged).evidence is None


def test_a_zero_bound_admits_the_exact_value_only():
    assert outcome([1.0], [1.0], allowed=0.0).evidence is None
    assert outcome([1.0], [1.0000001], allowed=0.0).evidence is not None


def test_a_broadcastable_shape_is_not_the_shape():
    result = outcome([1.0, 1.0], [1.0])
    assert result.evidence.note == "shape (1,) instead of (2,)"


def test_integers_are_exact():
    tensor = truth([3.0, 4.0])
    exact = TruthTensor(
        path="output",
        dtype=torch.int64,
        values=torch.tensor([3, 4]),
        allowed=tensor.allowed,
        allowed_subnormal=tensor.allowed,
        charged=tensor.charged,
        working=torch.tensor([3, 4]),
    )
    fine = compare(Probe(), exact, OutputTensor(path="output", data=torch.tensor([3, 4])))
    wrong = compare(Probe(), exact, OutputTensor(path="output", data=torch.tensor([3, 5])))
    assert fine.evidence is None
    assert wrong.evidence.got == 5


def test_nothing_came_back():
    assert compare(Probe(), truth([1.0]), None).evidence.note == "missing"


@pytest.mark.parametrize(
    ("fields", "honest"),
    [
        ({"exception": "TypeError", "message": "float16 is not supported"}, True),
        ({"exception": "TypeError", "message": "float16 is not supported", "launches": 1}, False),
        ({"exception": "CompilationError", "message": "Expected dtype fp32 but got fp16"}, True),
        ({"exception": "KeyError", "message": "float16"}, False),
        ({"exception": "ValueError", "message": "bad shape"}, False),
        ({"exception": "TypeError", "message": "dtype?", "phase": "backward"}, False),
    ],
)
def test_a_refusal_is_said_before_any_launch_and_about_the_dtype(fields, honest):
    fault = Fault(**{"kind": "exception", "phase": "forward", **fields})
    assert refuses_dtype(fault) == honest


@pytest.mark.parametrize(
    ("expected", "allowed", "got", "fine"),
    [
        (65380.0, 3400.0, INF, True),
        (-65380.0, 3400.0, -INF, True),
        (65380.0, 3400.0, -INF, False),
        (65380.0, 1.0, INF, False),
        (1.0, 0.5, INF, False),
    ],
)
def test_an_overflow_is_within_a_bound_that_reaches_beyond_the_dtype(expected, allowed, got, fine):
    half = OutputTensor(path="output", data=torch.tensor([got], dtype=torch.float16))
    seen = compare(Probe(), truth([expected], allowed=allowed), half)
    assert (seen.evidence is None) == fine
    assert (seen.worst_ratio < 1) == fine
