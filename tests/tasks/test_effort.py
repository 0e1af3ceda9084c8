"""Effort: counted without computing, in proportion to what a call costs."""

from __future__ import annotations

from lethe_env.tasks.effort import OPERATION_UNITS, PRODUCTS_PER_UNIT, meta_run

SOURCE = """
import torch
rows, width, out = 64, 128, 256
class Model(torch.nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.linear = torch.nn.Linear(width, out, bias=False)
    def forward(self, x):
        return BODY
def get_inputs():
    return [torch.randn(rows, width)]
def get_init_inputs():
    return [width, out]
"""


def units(body: str, **sizes: int) -> int:
    run = meta_run(SOURCE.replace("BODY", body), sizes, "test")
    assert run is not None
    return run.units


def test_an_operation_counts_what_it_writes_and_a_view_counts_nothing():
    weights = units("x")
    assert units("x.t().reshape(2, -1).relu()") >= weights + OPERATION_UNITS + 64 * 128
    assert units("x.t()") == weights
    assert units("x.relu()", rows=128) - units("x.relu()") == 64 * 128


def test_products_count_by_their_multiplications():
    one, two = units("self.linear(x)"), units("self.linear(x)", rows=128)
    assert two - one == 64 * 256 + 64 * 128 * 256 // PRODUCTS_PER_UNIT


def test_shapes_come_with_it_and_a_reference_that_looks_at_values_has_none():
    assert meta_run(SOURCE.replace("BODY", "(x, x.sum(0))"), {}, "t").output_shapes == [
        (64, 128),
        (128,),
    ]
    assert meta_run(SOURCE.replace("BODY", "x * x.sum().item()"), {}, "t") is None


def test_nothing_is_allocated():
    assert units("x.relu()", rows=1 << 40) > 1 << 46


def test_a_softmax_between_two_products_is_attention():
    def found(body: str) -> bool:
        run = meta_run(SOURCE.replace("BODY", body), {}, "test")
        assert run is not None
        return run.attends

    scores = "torch.softmax(x @ x.T, -1)"
    assert found(f"{scores} @ x")
    assert found("torch.nn.functional.scaled_dot_product_attention(x, x, x)")
    assert not found(scores)
    assert not found("torch.softmax(x, -1) @ x.T")
    assert not found("self.linear(x) @ self.linear(x).T")
