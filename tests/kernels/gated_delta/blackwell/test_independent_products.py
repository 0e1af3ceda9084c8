"""The output's adjoint, by tcgen05."""

from dataclasses import dataclass

import pytest
import torch

from lethe_env.gates.hardware import excesses
from lethe_env.kernels.footprint import footprint
from lethe_env.kernels.gated_delta import stages
from lethe_env.kernels.gated_delta.blackwell.compilation import compile_output_adjoint
from lethe_env.vgpu.cute.function import VirtualFunction

from .rounding import product_error
from .running import assert_bits_do_not_depend_on_the_schedule, assert_within, resources, run

pytestmark = pytest.mark.xdist_group("blackwell")
TOKENS = 64


def draw(chunks, *shapes):
    """Operands, exact in float16."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(chunks, *shape, generator=generator).half() for shape in shapes]


@dataclass(frozen=True)
class OutputStage:
    """dA = tril(dO Uᵀ) and Aᵀ dO."""

    function: VirtualFunction
    values: int
    columns: int

    @property
    def depths(self):
        return self.values, TOKENS

    def operands(self, chunks):
        rows, pairs = (TOKENS, self.values), (TOKENS, TOKENS)
        grad_output, attention, updates = draw(chunks, rows, pairs, rows)
        return [grad_output, attention.tril(), updates]

    def shapes(self, chunks):
        return (chunks, TOKENS, TOKENS), (chunks, TOKENS, self.values)

    def exactly(self, inputs):
        return stages.output_adjoint(*(tensor.double() for tensor in inputs))


@pytest.fixture(scope="module", params=[64, 128], ids="V{}".format)
def stage(request):
    function = VirtualFunction(compile_output_adjoint(request.param))
    return OutputStage(function, request.param, columns=2 * request.param)


@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_results_are_those_of_the_stage_in_float64(stage, chunks):
    inputs = stage.operands(chunks)
    found = run(stage.function, inputs, *stage.shapes(chunks))
    magnitudes = stage.exactly([tensor.abs() for tensor in inputs])
    for result, exact, magnitude, depth in zip(
        found, stage.exactly(inputs), magnitudes, stage.depths, strict=True
    ):
        assert_within(result, exact, product_error(magnitude, depth))


def test_bits_do_not_depend_on_the_schedule(stage):
    assert_bits_do_not_depend_on_the_schedule(stage.function, stage.operands(7), *stage.shapes(7))


def test_chunks_do_not_see_each_other(stage):
    inputs = stage.operands(4)
    plain = run(stage.function, inputs, *stage.shapes(4))
    for tensor in inputs:
        tensor[2] = torch.nan
    others = [0, 1, 3]
    for result, expected in zip(run(stage.function, inputs, *stage.shapes(4)), plain, strict=True):
        assert torch.equal(result[others], expected[others])


def test_a_block_fits_and_gives_tensor_memory_back(stage):
    found = footprint(stage.function.compiled.ptx, stage.function.compiled.cubin)
    assert found.faults == (), "several allocations, columns that stay, or spills"
    assert found.allocated == (stage.columns,)
    assert excesses(resources(stage.function, stage.operands(1), *stage.shapes(1))) == []


def test_what_the_kernel_is_not_made_for():
    with pytest.raises(ValueError, match=r"takes \(64, 128\) value channels, not 32"):
        compile_output_adjoint(32)
