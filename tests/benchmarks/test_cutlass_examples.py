"""What runs NVIDIA's examples, as far as it needs no checkout of them."""

import importlib
from pathlib import Path

import pytest
import torch

from lethe_env.vgpu.session import Finding

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_a_path_that_is_no_checkout(script, tmp_path):
    with pytest.raises(SystemExit, match=r"no checkout of CUTLASS.*no folder examples/python.*git"):
        script("cutlass_examples").check_checkout(tmp_path)
    (tmp_path / "examples/python/CuTeDSL/cute/blackwell").mkdir(parents=True)
    script("cutlass_examples").check_checkout(tmp_path)
    assert script("cutlass_examples").commit_of(tmp_path) == "unknown"


def test_a_finding_counts_once_a_line(script):
    def found(kind, line):
        return Finding(kind=kind, kernel="k", opcode="o", file="f", line=line, lanes=1, detail="")

    findings = [found("race", 3), found("race", 3), found("race", 4), found("out_of_bounds", 3)]
    assert script("cutlass_examples").by_kind(findings) == {"out_of_bounds": 1, "race": 2}


def test_what_a_sum_in_a_tensor_core_may_drop(script):
    left = torch.full((1, 32), 0.5).half()
    right = torch.full((1, 32), -1.0).half()
    # Two steps, sixteen products each and the total, of 16 in magnitude.
    expected = 2 * (17 * 2.0**-25 + 2.0**-23) * 16
    bound = script("cutlass_cases").product_bound(left, right, torch.float32)
    assert bound.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("dtype", "coarser"), [(torch.float16, torch.bfloat16), (torch.float32, torch.float16)]
)
def test_an_honest_product_is_within_its_bound_and_a_wrong_one_is_not(script, dtype, coarser):
    torch.manual_seed(0)
    left, right = torch.randn(16, 128).half(), torch.randn(16, 128).half()
    truth = left.double() @ right.double().mT
    bound = script("cutlass_cases").product_bound(left, right, dtype)
    honest = (left.float() @ right.float().mT).to(dtype)
    assert (honest - truth).abs().le(bound).all()
    without_one = left[:, 1:].double() @ right[:, 1:].double().mT
    for wrong in (without_one.to(dtype), truth.to(coarser)):
        assert (wrong - truth).abs().gt(bound).double().mean() > 0.5


def test_the_scan_by_chunks_is_the_one_by_tokens(script):
    torch.manual_seed(0)
    heads, width, chunks, size, states = 2, 3, 3, 4, 5
    x = torch.randn(heads, width, chunks, size).double()
    step, rates = (torch.rand(heads, chunks, size).double() for _ in range(2))
    key, query = (torch.randn(states, chunks, size).double() for _ in range(2))
    weight = torch.randn(heads, width).double()
    state, outputs = torch.zeros(heads, width, states).double(), torch.zeros_like(x)
    for n, t in torch.cartesian_prod(torch.arange(chunks), torch.arange(size)).tolist():
        written = x[:, :, n, t, None] * (step[:, n, t, None] * key[:, n, t])[:, None]
        state = state * (-rates[:, n, t]).exp()[:, None, None] + written
        outputs[:, :, n, t] = state @ query[:, n, t] + weight * x[:, :, n, t]
    found = script("cutlass_cases").scan(x, step, -rates.cumsum(-1), key, query, weight, adds=True)
    for value, expected in zip(found, (outputs, state), strict=True):
        # A thousand float64 roundings of numbers of this size.
        assert (value - expected).abs().max() < 1000 * torch.finfo(torch.float64).eps * 10
