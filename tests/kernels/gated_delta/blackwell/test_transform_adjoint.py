"""K#2 by tcgen05: against float64, under every schedule, and what it takes of a multiprocessor."""

from __future__ import annotations

import pytest
import torch

from lethe_env.gates.hardware import excesses
from lethe_env.kernels.footprint import footprint
from lethe_env.kernels.gated_delta import stages
from lethe_env.kernels.gated_delta.blackwell.compilation import compile_transform_adjoint
from lethe_env.tasks.observation import KernelResources
from lethe_env.vgpu.cute.function import VirtualFunction

pytestmark = pytest.mark.xdist_group("blackwell")
KEYS, TOKENS, STEP = 128, 64, 16
"""Key channels, tokens of a chunk, and terms that a tensor core adds at once."""
RESERVED_BYTES, MULTIPROCESSOR_BYTES = 1024, 228 << 10
"""Shared memory that every block takes besides its own, and all of it, compute capability 10.0."""
SCHEDULES = [(early, seed) for early in (False, True) for seed in (0, 1, 2)]


@pytest.fixture(scope="module", params=[64, 128])
def kernel(request):
    """The kernel for V = 64 or 128, on the virtual GPU."""
    return VirtualFunction(compile_transform_adjoint(request.param))


def width(kernel):
    return kernel.compiled.parameters[1][1].shape[2]


def operands(chunks, values, seed=0):
    """T of some random M, U, h and dU, in float16."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(chunks, *shape, generator=generator, dtype=torch.float64)

    inverse = stages.triangular_inverse(0.1 * draw(TOKENS, TOKENS).tril(-1))
    tensors = inverse, draw(TOKENS, values), draw(KEYS, values), draw(TOKENS, values)
    return [tensor.half() for tensor in tensors]


def outputs(chunks, values):
    """Room for the results, full of NaN."""
    shapes = (TOKENS, values), (TOKENS, KEYS), (TOKENS, TOKENS)
    return [torch.full((chunks, *shape), torch.nan) for shape in shapes]


def run(kernel, inputs):
    """What the kernel writes where nobody has written."""
    results = outputs(inputs[0].shape[0], width(kernel))
    for result in results:
        kernel.session.memory.mark_undefined(result)
    kernel(*inputs, *results)
    assert kernel.session.take_findings() == []
    return stages.TransformGradients(*results)


def sum_error(magnitudes, terms):
    """How far a sum of products of float16 may be off, if the magnitudes add up to this.

    A tensor core adds 16 products and what it has. It cuts all 17 off at 2⁻²⁵ of the largest, and
    the result to float32, at 2⁻²³ of it; each of these is at most all magnitudes together, to
    which what was lost before adds less than a hundredth.
    """
    return 1.01 * terms / STEP * (17 * 2**-25 + 2**-23) * magnitudes


def bounds(inverse, updates, states, grad_updates):
    """How far each result may be off: sums that are cut off, and dR rounded to float16 between."""
    inverse, updates, states, grad_updates = (
        tensor.double().abs() for tensor in (inverse, updates, states, grad_updates)
    )
    magnitude = inverse.mT @ grad_updates
    written = sum_error(magnitude, TOKENS)
    kept = magnitude + written
    rounded = written + 2**-11 * kept + 2**-25
    kept = kept + rounded
    values = updates.shape[-1]
    return stages.TransformGradients(
        written,
        *(
            rounded @ factor.mT + sum_error(kept @ factor.mT, values)
            for factor in (states, updates)
        ),
    )


@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_gradients_are_those_of_the_stage_in_float64(kernel, chunks):
    inputs = operands(chunks, width(kernel))
    truth = stages.transform_adjoint(*(tensor.double() for tensor in inputs))
    for name, got, exact, bound in zip(
        truth._fields, run(kernel, inputs), truth, bounds(*inputs), strict=True
    ):
        ratio = ((got.double() - exact).abs() / bound).max().item()
        assert ratio <= 1, f"{name}: {ratio:.3g} times the bound"


def test_the_part_of_dm_that_is_not_strictly_lower_is_zero(kernel):
    erasure = run(kernel, operands(3, width(kernel))).erasure
    assert torch.equal(erasure, erasure.tril(-1))


def test_without_an_inverse_the_gradient_is_handed_on_to_the_last_bit(kernel):
    """T = I, as where nothing is erased: dR = dU, and dKb and dM of small integers are exact."""
    generator = torch.Generator().manual_seed(0)
    values = width(kernel)
    updates, states, grad_updates = (
        torch.randint(-4, 5, (3, rows, values), generator=generator).half()
        for rows in (TOKENS, KEYS, TOKENS)
    )
    inverse = torch.eye(TOKENS).half().repeat(3, 1, 1)
    inputs = inverse, updates, states, grad_updates
    truth = stages.transform_adjoint(*(tensor.double() for tensor in inputs))
    for got, exact in zip(run(kernel, inputs), truth, strict=True):
        assert torch.equal(got, exact.float())


def test_bits_do_not_depend_on_the_schedule(kernel):
    inputs = operands(7, width(kernel))
    results = []
    for kernel.session.early, kernel.session.seed in SCHEDULES:
        results.append(run(kernel, inputs))
    kernel.session.early = None
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def test_chunks_do_not_see_each_other(kernel):
    """A chunk full of NaN leaves its neighbour in the block, lanes and columns, as it is."""
    inputs = operands(4, width(kernel))
    plain = run(kernel, inputs)
    for tensor in inputs:
        tensor[1] = torch.nan
    for got, expected in zip(run(kernel, inputs), plain, strict=True):
        kept = [0, 2, 3]
        assert torch.equal(got[kept], expected[kept])


def test_one_allocation_that_fits_and_is_given_back(kernel, monkeypatch):
    requests = []
    monkeypatch.setattr(VirtualFunction, "launch", lambda _, request: requests.append(request))
    kernel(*operands(1, width(kernel)), *outputs(1, width(kernel)))
    (request,) = requests
    found = footprint(kernel.compiled.ptx, kernel.compiled.cubin)
    assert (found.allocated, found.released, found.relinquished) == ((256,), (256,), 1)
    assert found.faults == ()
    resources = KernelResources(
        kernel="transform_adjoint",
        target="sm_100",
        registers=found.registers,
        spill_bytes=found.spilled_bytes,
        shared_bytes=request.shared_bytes,
        tensor_memory_columns=found.columns,
        threads=request.block[0],
    )
    assert excesses(resources) == []
    two_blocks_fit = 2 * (request.shared_bytes + RESERVED_BYTES) <= MULTIPROCESSOR_BYTES
    assert two_blocks_fit == (width(kernel) == 64)
