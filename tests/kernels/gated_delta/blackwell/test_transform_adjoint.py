"""K#2 by tcgen05: against float64, under every schedule, and what it takes of a multiprocessor."""

import pytest
import torch

from lethe_env.gates.hardware import excesses
from lethe_env.kernels.footprint import footprint
from lethe_env.kernels.gated_delta import stages
from lethe_env.kernels.gated_delta.blackwell.compilation import compile_transform_adjoint
from lethe_env.vgpu.cute.function import VirtualFunction

from .rounding import operand_error, product_error
from .running import assert_bits_do_not_depend_on_the_schedule, assert_within, resources, run

pytestmark = pytest.mark.xdist_group("blackwell")
KEYS, TOKENS = 128, 64
RESERVED_BYTES, MULTIPROCESSOR_BYTES = 1024, 228 << 10
"""Shared memory that every block takes besides its own, and all of it, compute capability 10.0."""


@pytest.fixture(scope="module", params=[64, 128], ids="V{}".format)
def function(request):
    return VirtualFunction(compile_transform_adjoint(request.param))


@pytest.fixture(scope="module")
def values(function):
    return function.compiled.parameters[1][1].shape[-1]


def operands(chunks, values):
    """T of some random M, U, h and dU, in float16."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(chunks, *shape, generator=generator, dtype=torch.float64)

    inverse = stages.triangular_inverse(0.1 * draw(TOKENS, TOKENS).tril(-1))
    tensors = inverse, draw(TOKENS, values), draw(KEYS, values), draw(TOKENS, values)
    return [tensor.half() for tensor in tensors]


def shapes(chunks, values):
    return (chunks, TOKENS, values), (chunks, TOKENS, KEYS), (chunks, TOKENS, TOKENS)


def exactly(inputs):
    return stages.transform_adjoint(*(tensor.double() for tensor in inputs))


def bounds(inverse, updates, states, grad_updates):
    """How far each result may be off: sums in float32, and dR rounded to float16 between."""
    inverse, updates, states, grad_updates = (
        tensor.double().abs() for tensor in (inverse, updates, states, grad_updates)
    )
    magnitude = inverse.mT @ grad_updates
    written = product_error(magnitude, TOKENS)
    entering = operand_error(magnitude, written)
    depth = updates.shape[-1]
    erased, erasure = (
        entering @ factor.mT + product_error((magnitude + entering) @ factor.mT, depth)
        for factor in (states, updates)
    )
    return written, erased, erasure


@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_gradients_are_those_of_the_stage_in_float64(function, values, chunks):
    inputs = operands(chunks, values)
    found = run(function, inputs, *shapes(chunks, values))
    for result, exact, bound in zip(found, exactly(inputs), bounds(*inputs), strict=True):
        assert_within(result, exact, bound)


def test_the_form_with_seven_products_gives_the_same(function, values):
    """With w∘v and Kb that give the same U, in float64, where neither form rounds."""
    inputs = operands(2, values)
    inverse, updates, states, grad_updates = (tensor.double() for tensor in inputs)
    erase = torch.randn(2, TOKENS, KEYS, generator=torch.Generator().manual_seed(1)).double()
    written = torch.linalg.solve_triangular(inverse, updates, upper=False) + erase @ states
    exact = stages.transform_adjoint_by_inverse(inverse, erase, written, states, grad_updates)
    found = run(function, inputs, *shapes(2, values))
    for result, other, bound in zip(found, exact, bounds(*inputs), strict=True):
        assert_within(result, other, bound)


def test_the_part_of_dm_that_is_not_strictly_lower_is_zero(function, values):
    *_, erasure = run(function, operands(3, values), *shapes(3, values))
    assert torch.equal(erasure, erasure.tril(-1))


def test_without_an_inverse_small_integers_are_exact(function, values):
    """T = I, as where nothing is erased: dR = dU."""
    generator = torch.Generator().manual_seed(0)
    updates, states, grad_updates = (
        torch.randint(-4, 5, (3, rows, values), generator=generator).half()
        for rows in (TOKENS, KEYS, TOKENS)
    )
    inputs = torch.eye(TOKENS).half().repeat(3, 1, 1), updates, states, grad_updates
    found = run(function, inputs, *shapes(3, values))
    for result, exact in zip(found, exactly(inputs), strict=True):
        assert torch.equal(result, exact.float())


def test_bits_do_not_depend_on_the_schedule(function, values):
    assert_bits_do_not_depend_on_the_schedule(function, operands(7, values), *shapes(7, values))


def test_chunks_do_not_see_each_other(function, values):
    """A chunk full of NaN leaves its neighbour in the block, lanes and columns, as it is."""
    inputs = operands(4, values)
    plain = run(function, inputs, *shapes(4, values))
    for tensor in inputs:
        tensor[1] = torch.nan
    others = [0, 2, 3]
    for result, expected in zip(run(function, inputs, *shapes(4, values)), plain, strict=True):
        assert torch.equal(result[others], expected[others])


def test_tensor_memory_is_taken_once_and_given_back(function, values):
    found = footprint(function.compiled.ptx, function.compiled.cubin)
    assert found.faults == (), "several allocations, columns that stay, or spills"
    assert found.allocated == (256,)


def test_a_block_fits_and_for_64_value_channels_two(function, values):
    taken = resources(function, operands(1, values), *shapes(1, values))
    assert excesses(taken) == []
    both_bytes = 2 * (taken.shared_bytes + RESERVED_BYTES)
    assert (both_bytes <= MULTIPROCESSOR_BYTES) == (values == 64)


def test_what_the_kernel_is_not_made_for():
    with pytest.raises(ValueError, match=r"K#2 takes \(64, 128\) value channels, not 96"):
        compile_transform_adjoint(96)
