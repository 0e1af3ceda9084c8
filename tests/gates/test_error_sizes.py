"""Sizes of errors that are found once: the same bounds, for a fraction of the work."""

from __future__ import annotations

import pytest
import torch

from lethe_env.gates import error_sizes
from lethe_env.gates.error_sizes import ErrorSize, ErrorSizes
from lethe_env.gates.rounding import Precision, estimate

FLOAT32 = Precision(dtype=torch.float32)


def reference() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(24, 96, generator=generator, dtype=torch.float64)
    w = torch.randn(96, 48, generator=generator, dtype=torch.float64)
    centred = x - x.mean(-1, keepdim=True)
    return [torch.relu(x @ w), centred.square().sum(-1).sqrt(), torch.softmax(x @ w, -1)]


def test_the_bounds_are_those_of_sizes_found_in_every_run(monkeypatch):
    once = estimate(reference, FLOAT32)
    monkeypatch.setattr(error_sizes, "KEPT_BYTES", 0)
    always = estimate(reference, FLOAT32)
    for one, two in zip(once.deviation, always.deviation, strict=True):
        difference = (one - two).abs()
        assert (difference <= 1e-5 * two).all()  # second order: u beside the errors themselves


def test_sums_are_measured_in_the_first_run_alone(monkeypatch):
    measured = []
    monkeypatch.setattr(
        "lethe_env.gates.perturbation.coherent_error", lambda *a: measured.append(1) or 0.0
    )
    x = torch.rand(8, 64, dtype=torch.float64)
    estimate(lambda: [x.sum(-1), (x * 2).sum(-1)], FLOAT32, samples=5)
    assert len(measured) == 2


def test_a_sum_of_terms_of_one_sign_keeps_its_sign_where_they_are_errors_themselves():
    x = torch.full((512, 1), 3.7, dtype=torch.float64)

    def deviation() -> list[torch.Tensor]:
        return [(x * 1.1 - 4.07).square().sum(-1).sqrt()]

    found = estimate(deviation, FLOAT32, samples=64)
    assert torch.isfinite(found.deviation[0]).all()


def test_what_is_proportional_follows_the_result_and_the_rest_stays():
    error, total = torch.tensor([2.0, 2.0, 0.0]), torch.tensor([4.0, -0.5, 0.0])
    size = ErrorSize.found(error, total, magnitude=torch.tensor([4.0, 4.0, 0.0]))
    assert size.at(torch.tensor([-1.0, 9.0, 7.0])).tolist() == [0.5, 2.0, 0.0]


@pytest.mark.parametrize("other", ["another", "one"])
def test_a_run_that_took_another_way_measures_anew(other):
    sizes = ErrorSizes()
    first, second = [None], [None, None]
    sizes.of("one", lambda: first)
    sizes.rewind()
    assert sizes.of(other, lambda: second) is (first if other == "one" else second)
