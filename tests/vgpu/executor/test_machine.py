"""Whole kernels in the executor. Integers in floats make sums exact, whatever their order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ..ptx.corpus import load
from .machine import execute
from .memory import Fault

WIDTH = 300


def run(name, grid, *arguments):
    """Run a kernel of the corpus on tensors and numbers."""
    kernel, shared_bytes = load(name)
    plain = [_array(item) if isinstance(item, torch.Tensor) else item for item in arguments]
    execute(kernel, grid, plain, shared_bytes)


def _array(tensor):
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def integers(*shape, seed=3, below=9, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-below, below, shape, generator=generator).to(dtype)


def test_relu():
    x, y = integers(WIDTH), torch.full((WIDTH,), 7.0)
    run("relu_fp32", (2,), x, y, WIDTH)
    assert torch.equal(y, x.relu())


@pytest.mark.parametrize(("name", "dtype"), [("sum_fp32", torch.float32), ("sum_fp16", torch.half)])
def test_sum(name, dtype):
    x, y = integers(2, WIDTH, dtype=dtype), torch.zeros(2, dtype=dtype)
    run(name, (2,), x, y, WIDTH)
    assert torch.equal(y, x.float().sum(-1).to(dtype))


def test_cumsum():
    x, y = integers(2, WIDTH), torch.zeros(2, WIDTH)
    run("cumsum_fp32", (2,), x, y, WIDTH)
    assert torch.equal(y, x.cumsum(-1))


@pytest.mark.parametrize(
    ("name", "dtype"), [("argmax_fp32", torch.float32), ("argmax_fp16", torch.half)]
)
def test_argmax_finds_the_first_nan(name, dtype):
    x = integers(3, WIDTH, dtype=dtype)
    x[1, 270] = x[1, 280] = torch.nan
    y = torch.zeros(3, dtype=torch.int64)
    run(name, (3,), x, y, WIDTH)
    assert y.tolist() == x.argmax(-1).tolist()
    assert y[1] == 270


def test_gated_scan():
    length, channels = 5, 40
    a, b = integers(1, length, channels, below=2), integers(1, length, channels)
    h = torch.zeros(1, length, channels)
    run("gated_scan_fp32", (1, 1), a, b, h, length, channels)
    state, expected = torch.zeros(channels), []
    for step in range(length):
        state = a[0, step] * state + b[0, step]
        expected.append(state)
    assert torch.equal(h[0], torch.stack(expected))


def test_matmul_with_edges():
    a, b, c = integers(20, 18), integers(18, 24), torch.zeros(20, 24)
    run("matmul_fp32", (2, 2), a, b, c, 20, 24, 18, 18, 1, 24, 1)
    assert torch.equal(c, a @ b)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("dot_fp16", torch.half), ("dot_bf16", torch.bfloat16), ("dot_fp32", torch.float32)],
)
def test_tensor_core_products(name, dtype):
    a, b = integers(32, 64, dtype=dtype), integers(64, 64, seed=4, dtype=dtype)
    c = torch.zeros(32, 64)
    run(name, (1, 2), a, b, c, 64, 64)
    assert torch.equal(c, a.float() @ b.float())


def test_tensor_cores_cut_float32_to_tf32():
    a = torch.eye(32) * (1 + 2.0**-10 + 2.0**-11 + 2.0**-20)
    b, c = torch.eye(32), torch.zeros(32, 32)
    run("dot_fp32", (1, 1), a, b, c, 32, 32)
    assert torch.equal(c, torch.eye(32) * (1 + 2.0**-10))


@pytest.mark.parametrize(
    ("name", "dtype", "last_bit"),
    [("softmax_fp32", torch.float32, 2.0**-24), ("softmax_fp16", torch.half, 2.0**-11)],
)
def test_softmax(name, dtype, last_bit):
    x, y = integers(2, WIDTH, dtype=dtype), torch.zeros(2, WIDTH, dtype=dtype)
    x[0, 5] = -torch.inf
    run(name, (2,), x, y, WIDTH)
    exact = x.double().softmax(-1)
    # Exponents reach 18 log2(e) = 26 and are rounded once, as is each of at most 20 sums and
    # products on a path; ex2 and the division are within an error of 2^-22 each.
    bound = exact * ((26 * 0.7 + 20) * 2.0**-24 + 2 * 2.0**-22 + last_bit) + 2.0**-24 * (
        dtype == torch.half
    )
    assert ((y.double() - exact).abs() <= bound).all()
    assert y[0, 5] == 0


def test_softmax_of_nan_is_nan():
    x, y = torch.zeros(1, WIDTH), torch.zeros(1, WIDTH)
    x[0, 3] = torch.nan
    run("softmax_fp32", (1,), x, y, WIDTH)
    assert y.isnan().all()


def test_layer_norm():
    x, weight, bias = integers(2, WIDTH), integers(WIDTH, seed=4), integers(WIDTH, seed=5)
    y = torch.zeros(2, WIDTH)
    run("layer_norm_fp32", (2,), x, weight, bias, y, WIDTH, 1e-5)
    exact = torch.nn.functional.layer_norm(
        x.double(), (WIDTH,), weight.double(), bias.double(), 1e-5
    )
    # The mean's rounding moves x - mean by 2^-24 of at most 9; on the way to y each number is
    # rounded at most 30 times, and sqrt and division are within an error of 2^-22 each.
    size = (exact - bias).abs() + bias.abs() + 9 * weight.abs()
    assert ((y - exact).abs() <= size * (32 * 2.0**-24 + 3 * 2.0**-22)).all()


def test_divergent_code_with_local_memory_and_an_assertion():
    x = torch.linspace(-3e6, 90, 64)
    y = torch.zeros(1)
    run("assert_sin_fp32", (1,), x, y, 64)
    exact = (x.double().sin() + x.double().floor()).sum()
    # Floors are exact, their sum is rounded at most 7 times, and sines are off by 2^-22 each.
    assert abs(y.item() - exact) <= x.abs().sum() * 7 * 2.0**-24 + 64 * 2.0**-22
    x[40] = 150.0
    with pytest.raises(Fault, match="assertion"):
        run("assert_sin_fp32", (1,), x, y, 64)


def test_an_access_outside_is_a_fault():
    with pytest.raises(Fault, match="bytes"):
        run("relu_fp32", (2,), torch.zeros(WIDTH), torch.zeros(WIDTH - 1), WIDTH)


def test_the_last_argument_may_lie_in_numpy():
    x, y = np.array([-1.0, 2.0], np.float32), np.zeros(2, np.float32)
    kernel, shared_bytes = load("relu_fp32")
    execute(kernel, (1,), [x, y, 2], shared_bytes)
    assert y.tolist() == [0.0, 2.0]
