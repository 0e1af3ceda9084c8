"""Host functions of the CuTe DSL and their kernels, on tensors of the CPU."""

import contextlib

import pytest
import torch

from lethe_env.kernels import cute_dsl
from lethe_env.kernels.cute_dsl import compile_host, placeholder
from lethe_env.vgpu.cute.function import VirtualFunction
from lethe_env.vgpu.session import LaunchError
from lethe_env.vgpu.timing import TARGETS, model

SCHEDULES = [(early, seed) for early in (False, True) for seed in (0, 1, 2)]


@pytest.fixture(scope="module")
def add(dsl):
    from .kernels import add

    vector = placeholder("Float32", None)
    return VirtualFunction(
        compile_host(add, vector, vector, vector, cute_dsl.load("cutlass").Int32(1))
    )


def compiled_product(**options):
    from .kernels import product

    factors = placeholder("Float16", None, 64), placeholder("Float16", 64, 64)
    return VirtualFunction(
        compile_host(product(**options), *factors, placeholder("Float32", None, 64))
    )


@pytest.fixture(scope="module")
def product(dsl):
    return compiled_product()


def factors(rows=256):
    """Small integers, whose sums of products are exact."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randint(-9, 10, (length, 64), generator=generator).half() for length in (rows, 64)
    ]


def expected(left, right):
    doubled = right.float()
    doubled[:, 0] *= 2
    return left.float() @ doubled.T


def test_the_host_function_computes_the_grid(add):
    a, b, out = (torch.randn(300) for _ in range(3))
    add(a, b, out, 300)
    assert torch.equal(out, a + b)
    assert add.session.take_findings() == []


def test_numbers_are_cast_as_the_host_function_declares(add):
    a, b, out = torch.ones(300), torch.ones(300), torch.zeros(300)
    add(a, b, out, 200)
    assert torch.equal(out, torch.cat([torch.full((200,), 2.0), torch.zeros(100)]))


def test_an_access_out_of_bounds_is_found_with_its_line_and_argument(add):
    a, b, out = torch.ones(200), torch.ones(300), torch.zeros(300)
    add(a, b, out, 300)
    (finding,) = add.session.take_findings()
    assert finding.kind == "out_of_bounds"
    assert "of the 800 bytes of argument a" in finding.detail
    assert finding.file.endswith("kernels.py")
    with open(finding.file) as source:
        assert "a[i] + b[i]" in source.read().splitlines()[finding.line - 1]


def test_a_constant_is_compiled_in_and_not_passed(dsl):
    from .kernels import THREADS, Scale

    vector, number = placeholder("Float32", None), cute_dsl.load("cutlass").Float32
    scale = VirtualFunction(compile_host(Scale(), vector, 2.0, number(1), vector))
    a, out = torch.randn(THREADS), torch.zeros(THREADS)
    for added in (0.5, -3.0):
        scale(a, added, out)
        assert torch.equal(out, 2 * a + added)
    with pytest.raises(ValueError, match="3 arguments are expected, 4 were given"):
        scale(a, 2.0, 0.5, out)


def test_a_product_by_tiles_and_tensor_memory(product):
    left, right = factors()
    out = torch.full((256, 64), torch.nan)
    product(left, right, out)
    assert torch.equal(out, expected(left, right))
    assert product.session.take_findings() == []


def test_copies_and_products_of_units_are_counted(product):
    left, right = factors()
    out = torch.full((256, 64), torch.nan)
    product(left, right, out)
    _, counts = product.session.counts[-1]
    # Each of two blocks copies its rows of the left factor, and the right one.
    assert counts.loaded_bytes == left.nbytes + 2 * right.nbytes
    assert counts.stored_bytes == out.nbytes
    assert counts.footprint_bytes == left.nbytes + right.nbytes + out.nbytes
    assert dict(counts.mma_operations) == {"f16": 2 * 256 * 64 * 64}
    # 2250 TFLOP/s of all 148 multiprocessors, of which two are used.
    time = model(counts, TARGETS["B200"])
    assert time.tensor_cores_us == pytest.approx(2 * 256 * 64 * 64 / 2250e6 * 148 / 2)


def test_bits_do_not_depend_on_the_schedule(product):
    left, right = torch.randn(256, 64).half(), torch.randn(64, 64).half()
    results = []
    for product.session.early, product.session.seed in SCHEDULES:
        results.append(torch.zeros(256, 64))
        product(left, right, results[-1])
    product.session.early = None
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_a_product_that_is_not_waited_for(dsl):
    function = compiled_product(waits=False)
    function.session.early = False
    left, right = factors(128)
    out = torch.zeros(128, 64)
    function(left, right, out)
    kinds = {(finding.kind, finding.opcode.split(".")[1]) for finding in function.session.findings}
    assert ("asynchronous", "ld") in kinds and ("asynchronous", "mma") in kinds
    assert not torch.equal(out, expected(left, right))


def test_threads_that_write_a_factor_without_a_fence(dsl):
    function = compiled_product(fences=False)
    function(*factors(128), torch.zeros(128, 64))
    findings = function.session.findings
    assert {finding.kind for finding in findings} == {"asynchronous"}
    with open(findings[0].file) as source:
        lines = source.read().splitlines()
    for finding in findings:
        assert "cute.gemm(" in lines[finding.line - 1]
        assert "is read without fence.proxy.async" in finding.detail


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.double(), "left is float64; the kernel was compiled for float16"),
        (lambda t: t[:, :32], r"left has the shape \(256, 32\); .* compiled for \(any, 64\)"),
        (lambda t: t.T.contiguous().T, r"left has the strides \(1, 256\); .* for \(64, 1\)"),
        (lambda t: t.flatten()[1:-63].view(-1, 64), "does not begin at a multiple of 16 bytes"),
        (lambda t: 3, "left has to be a tensor of the CPU"),
    ],
)
def test_tensors_that_the_function_was_not_compiled_for(product, change, message):
    left, right = factors()
    with pytest.raises(ValueError, match=message):
        product(change(left), right, torch.zeros(256, 64))


def test_the_number_of_arguments(add):
    with pytest.raises(ValueError, match="4 arguments are expected, 3 were given"):
        add(torch.ones(1), torch.ones(1), 1)


def test_an_error_in_a_launch_comes_out_of_the_host_function(add, monkeypatch):
    def fail(*_):
        raise LaunchError("as a kernel that hangs")

    monkeypatch.setattr(type(add.session), "launch", fail)
    with pytest.raises(LaunchError, match="as a kernel that hangs"):
        add(torch.ones(1), torch.ones(1), torch.ones(1), 1)


@pytest.fixture(scope="module")
def exchange(dsl):
    from .kernels import exchange

    vector = placeholder("Int32", None)
    return VirtualFunction(compile_host(exchange(), vector, vector))


@pytest.mark.parametrize(("early", "seed"), SCHEDULES)
def test_blocks_of_a_cluster_send_to_each_other(exchange, early, seed):
    exchange.session.early, exchange.session.seed = early, seed
    a, out = torch.arange(512, dtype=torch.int32), torch.zeros(512, dtype=torch.int32)
    exchange(a, out)
    assert exchange.request.cluster == (2, 1, 1)
    assert torch.equal(out, a.view(2, 2, 128).flip(1).flatten())
    assert exchange.session.take_findings() == []


def test_a_grid_that_is_no_number_of_clusters(exchange):
    wrong = torch.zeros(384, dtype=torch.int32)
    with pytest.raises(ValueError, match="no number of clusters"):
        exchange(wrong, wrong.clone())


def test_blocks_that_do_not_meet_before_they_send(dsl):
    """The other block's barrier may not be there yet; the line that sends is told."""
    from .kernels import exchange

    vector = placeholder("Int32", None)
    run = VirtualFunction(compile_host(exchange(meets=False), vector, vector))
    with contextlib.suppress(LaunchError):
        run(torch.zeros(256, dtype=torch.int32), torch.zeros(256, dtype=torch.int32))
    findings = run.session.take_findings()
    told = {f.line for f in findings if f.kind in ("barrier", "uninitialised_read")}
    with open(findings[0].file) as source:
        lines = source.read().splitlines()
    assert any("store_async_dsmem" in lines[line - 1] for line in told)
