"""Triton kernels on the machine give what numpy gives, and nothing is reported about them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

EPS32 = 2.0**-24


@triton.jit
def add_kernel(x, y, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@triton.jit
def softmax_kernel(x, o, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < n
    v = tl.load(x + r * n + c, mask=m, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + r * n + c, e / tl.sum(e, 0), mask=m)


@triton.jit
def norm_kernel(x, w, b, o, n, eps, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < n
    v = tl.load(x + r * n + c, mask=m, other=0.0)
    d = tl.where(m, v - tl.sum(v, 0) / n, 0.0)
    s = 1.0 / tl.sqrt(tl.sum(d * d, 0) / n + eps)
    tl.store(o + r * n + c, d * s * tl.load(w + c, mask=m) + tl.load(b + c, mask=m), mask=m)


@triton.jit
def sum_loop_kernel(x, o, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.int32)
    for s in range(0, n, BLOCK):
        c = s + tl.arange(0, BLOCK)
        total += tl.load(x + r * n + c, mask=c < n, other=0)
    tl.store(o + r, tl.sum(total, 0))


@triton.jit
def cumsum_kernel(x, o, n, BLOCK: tl.constexpr):
    c = tl.program_id(0) * n + tl.arange(0, BLOCK)
    m = tl.arange(0, BLOCK) < n
    tl.store(o + c, tl.cumsum(tl.load(x + c, mask=m, other=0), 0), mask=m)


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + om[:, None] * K + (k + ok)[None, :])
        w = tl.load(b + (k + ok)[:, None] * N + on[None, :])
        acc = tl.dot(x, w, acc)
    tl.store(c + om[:, None] * N + on[None, :], acc)


@triton.jit
def sine_kernel(x, o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(o + i, tl.sin(v))


def test_vector_add_with_a_tail(machine):
    signature = {"x": "*fp32", "y": "*fp32", "o": "*fp32", "n": "i32"}
    program, shared = machine.triton(add_kernel, signature, {"BLOCK": 256})
    n = 1003
    x, y, o = torch.randn(n), torch.randn(n), torch.full((n + 50,), 7.0)
    report = machine.run(program, [4], x, y, o, n, shared_bytes=shared)
    assert report.findings == ()
    assert torch.equal(o[:n], x + y)
    assert torch.equal(o[n:], torch.full((50,), 7.0))


@pytest.mark.parametrize("seed", [None, 3])
def test_softmax(machine, seed):
    signature = {"x": "*fp32", "o": "*fp32", "n": "i32"}
    program, shared = machine.triton(softmax_kernel, signature, {"BLOCK": 512})
    x, o = torch.randn(6, 500), torch.empty(6, 500)
    report = machine.run(program, [6], x, o, 500, undefined=[o], shared_bytes=shared, seed=seed)
    assert report.findings == ()
    exact = torch.softmax(x.double(), 1)
    assert ((o - exact).abs() <= 32 * EPS32 * exact).all()


def test_layer_norm(machine):
    signature = {"x": "*fp32", "w": "*fp32", "b": "*fp32", "o": "*fp32", "n": "i32", "eps": "fp32"}
    program, shared = machine.triton(norm_kernel, signature, {"BLOCK": 512})
    x, w, b, o = torch.randn(5, 400), torch.randn(400), torch.randn(400), torch.empty(5, 400)
    report = machine.run(program, [5], x, w, b, o, 400, 1e-5, undefined=[o], shared_bytes=shared)
    assert report.findings == ()
    exact = torch.nn.functional.layer_norm(x.double(), (400,), w.double(), b.double(), 1e-5)
    assert (o - exact).abs().max() <= 64 * EPS32 * exact.abs().max()


def test_integer_sum_over_a_loop(machine):
    signature = {"x": "*i32", "o": "*i32", "n": "i32"}
    program, shared = machine.triton(sum_loop_kernel, signature, {"BLOCK": 128})
    x, o = (
        torch.randint(-1000, 1000, (4, 777), dtype=torch.int32),
        torch.empty(4, dtype=torch.int32),
    )
    report = machine.run(program, [4], x, o, 777, undefined=[o], shared_bytes=shared)
    assert report.findings == ()
    assert torch.equal(o, x.sum(1, dtype=torch.int32))


def test_integer_cumsum_across_warps(machine):
    signature = {"x": "*i32", "o": "*i32", "n": "i32"}
    program, shared = machine.triton(cumsum_kernel, signature, {"BLOCK": 512})
    x, o = torch.randint(-9, 9, (3, 450), dtype=torch.int32), torch.empty(3, 450, dtype=torch.int32)
    report = machine.run(program, [3], x, o, 450, undefined=[o], shared_bytes=shared)
    assert report.findings == ()
    assert torch.equal(o, x.cumsum(1, dtype=torch.int32))


@pytest.mark.parametrize("threads", [1, 2])
def test_half_matmul_of_small_integers_is_exact(machine, threads):
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    tile = {"BM": 32, "BN": 64, "BK": 32}
    program, shared = machine.triton(matmul_kernel, signature, tile, aligned="MNK", num_stages=3)
    a = torch.randint(-8, 8, (64, 128)).half()
    b = torch.randint(-8, 8, (128, 128)).half()
    c = torch.empty(64, 128)
    options = {"shared_bytes": shared, "threads": threads}
    report = machine.run(program, [2, 2], a, b, c, 64, 128, 128, undefined=[c], **options)
    assert report.findings == ()
    assert torch.equal(c, (a.long() @ b.long()).float())
    assert report.counts["mma_operations"] == 2 * 64 * 128 * 128


def test_float_matmul_drops_the_low_bits_as_tf32(machine):
    signature = {"a": "*fp32", "b": "*fp32", "c": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    tile = {"BM": 32, "BN": 32, "BK": 32}
    program, shared = machine.triton(matmul_kernel, signature, tile, aligned="MNK")
    a, b, c = torch.randn(32, 64), torch.randn(64, 32), torch.empty(32, 32)
    report = machine.run(program, [1, 1], a, b, c, 32, 32, 64, undefined=[c], shared_bytes=shared)
    assert report.findings == ()
    cut = [(t.view(torch.int32) & -8192).view(torch.float32).double() for t in (a, b)]
    bound = 64 * 2.0**-22 * (cut[0].abs() @ cut[1].abs())
    assert ((c - cut[0] @ cut[1]).abs() <= bound).all()
    assert ((c - a.double() @ b.double()).abs() > bound).any()


def test_sine_with_lanes_on_its_slow_path(machine):
    program, shared = machine.triton(sine_kernel, {"x": "*fp32", "o": "*fp32"}, {"BLOCK": 128})
    x = torch.linspace(-4, 4, 128)
    x[::3] *= 1e6
    o = torch.empty(128)
    report = machine.run(program, [1], x, o, undefined=[o], shared_bytes=shared)
    assert report.findings == ()
    assert np.abs(o.numpy() - np.sin(x.double().numpy())).max() < 2.0**-20
