"""K#2 by tcgen05: against float64, under every schedule, and what it takes of a multiprocessor."""

from dataclasses import replace

import pytest
import torch

from lethe_env.gates.hardware import excesses
from lethe_env.kernels.footprint import footprint
from lethe_env.kernels.gated_delta import stages
from lethe_env.kernels.gated_delta.blackwell.compilation import CHUNK, compile_transform_adjoint
from lethe_env.kernels.gated_delta.blackwell.native_stages import transform_adjoint
from lethe_env.kernels.gated_delta.device import ABSENT, PER_CHANNEL, PER_HEAD
from lethe_env.kernels.gated_delta.forward_pass import Scratch
from lethe_env.kernels.gated_delta.setting import Setting, Tokens
from lethe_env.vgpu.cute.function import VirtualFunction

from .packed import BORDERS, HEADS, LENGTH, by_chunk, by_token, chunks, drawing
from .rounding import STEP, operand_error, product_error
from .running import (
    assert_bits_do_not_depend_on_the_schedule,
    assert_within,
    resources,
    run,
    same_bits,
)

pytestmark = pytest.mark.xdist_group("blackwell")
KEYS = 16
"""Of which the kernel sees none."""
RESERVED_BYTES, MULTIPROCESSOR_BYTES = 1024, 228 << 10
"""Shared memory that every block takes besides its own, and all of it, compute capability 10.0."""
GATES = {"absent": ABSENT.value, "head": PER_HEAD.value, "channel": PER_CHANNEL.value}
FORMS = [
    (64, True, "channel"),
    (128, True, "channel"),
    (128, True, "head"),
    (64, False, "absent"),
    (128, False, "head"),
    (24, True, "absent"),
]


@pytest.fixture(scope="module", params=FORMS, ids="{0[0]}-{0[1]}-{0[2]}".format)
def form(request):
    return request.param


@pytest.fixture(scope="module")
def function(form):
    values, erases, gate = form
    return VirtualFunction(compile_transform_adjoint(values, erases, GATES[gate]))


def drawn(form):
    """v and w, and T of some random M, U, dO and dU, in float16, with zeros where no token is."""
    values, erases, gate = form
    draw, generator = drawing()
    places = chunks()
    setting = Setting(
        HEADS, KEYS, values, torch.float16, 1.0, places, ABSENT.value,
        PER_CHANNEL.value if erases else ABSENT.value, GATES[gate],
    )  # fmt: skip
    v, updates, grad_output, grad_updates = (draw(values).half() for _ in range(4))
    w = {"absent": None, "head": draw(1)[..., 0].float(), "channel": draw(values).float()}[gate]
    noise = torch.randn(setting.matrix_shape, generator=generator, dtype=torch.float64)
    live = by_chunk(torch.ones(LENGTH, HEADS, 1).double())
    inverse = stages.triangular_inverse(0.1 * noise.tril(-1) * live * live.mT).half().contiguous()
    states = torch.zeros(setting.state_shape).half()
    stub = torch.zeros(1).half()
    strange = torch.zeros(setting.grid, dtype=torch.int32)
    rest = inverse if erases else stub, updates, states, strange
    kept = Scratch(*(stub,) * 3, stub.float(), inverse, *rest)
    tokens = Tokens(*(draw(KEYS).half() for _ in range(2)), v, None, None, w)
    return tokens, kept, grad_output, by_chunk(grad_updates).contiguous(), setting


@pytest.fixture(scope="module")
def given(form):
    return drawn(form)


@pytest.fixture(scope="module")
def made(function, given):
    return run(function, transform_adjoint, *given)


def exactly(given):
    """U, dO and dU by chunk, in float64."""
    _, kept, grad_output, grad_updates, _ = given
    return *(by_chunk(x.double()) for x in (kept.updates, grad_output)), grad_updates.double()


def residual(given):
    """dR, and how far sums in float32 may be from it."""
    _, kept, _, _, setting = given
    *_, grad_updates = exactly(given)
    if setting.b == ABSENT.value:
        return grad_updates, torch.zeros_like(grad_updates)
    inverse = kept.inverse.double()
    exact = inverse.mT @ grad_updates
    return exact, product_error(inverse.abs().mT @ grad_updates.abs(), CHUNK)


def test_da_is_that_of_the_stage_in_float64(made, given):
    updates, grad_output, _ = exactly(given)
    exact, _ = stages.output_adjoint(grad_output, given[1].attention.double(), updates)
    magnitude = grad_output.abs() @ updates.abs().mT
    bound = operand_error(exact, product_error(magnitude, updates.shape[-1]))
    assert_within(made.attention, exact, bound.tril())


def test_dr_is_that_of_the_stage_in_float64_and_so_is_dm_from_it(made, given, form):
    """Where nothing is erased, nobody touches what would take them."""
    if not form[1]:
        assert made.residual.isnan().all() and made.erasure.isnan().all()
        return
    updates, _, grad_updates = exactly(given)
    exact, error = residual(given)
    assert_within(by_chunk(made.residual), exact, operand_error(exact, error))
    stored = by_chunk(made.residual).double()
    erasure = -(stored @ updates.mT).tril(-1)
    magnitude = stored.abs() @ updates.abs().mT
    bound = operand_error(erasure, product_error(magnitude, updates.shape[-1]))
    assert_within(made.erasure, erasure, bound.tril(-1))
    states = given[1].states.double()
    whole = stages.transform_adjoint(given[1].inverse.double(), updates, states, grad_updates)
    off = operand_error(exact, error) @ updates.abs().mT
    assert_within(made.erasure, whole.erasure, (bound + off).tril(-1))


def test_dv_and_dw_are_what_dr_gives_before_it_is_rounded(made, given, form):
    tokens = given[0]
    exact, error = (by_token(x) for x in residual(given))
    gate = torch.ones(1, 1, 1).double()
    if tokens.w is not None:
        gate = tokens.w.double() if tokens.w.dim() == 3 else tokens.w.double().unsqueeze(-1)
        value = tokens.v.double()
        bound = (error + STEP * exact.abs()) * value.abs()
        assert_within(made.gate, exact * value, bound)
    else:
        assert made.gate.isnan().all()
    bound = (error + STEP * exact.abs()) * gate.abs()
    assert_within(made.value, exact * gate, operand_error(exact * gate, bound))


def test_bits_do_not_depend_on_the_schedule(function, given):
    assert_bits_do_not_depend_on_the_schedule(function, transform_adjoint, *given)


def test_chunks_do_not_see_each_other(function, made, given):
    """NaN in a head of a chunk leaves its neighbours, lanes, columns and rows, as they are.

    The chunk is the last of its sequence, and not full; the next one's tokens follow.
    """
    tokens, kept, grad_output, grad_updates, setting = given
    chunk, rows = 2, slice(128, 150)
    spoilt = [x.clone() for x in (kept.updates, grad_output, tokens.v)]
    for x in spoilt:
        x[rows, 1] = torch.nan
    grad_updates = grad_updates.clone()
    grad_updates[chunk, 1] = torch.nan
    updates, grad_output, v = spoilt
    found = run(
        function, transform_adjoint, replace(tokens, v=v), kept._replace(updates=updates),
        grad_output, grad_updates, setting,
    )  # fmt: skip
    for name, result in found._asdict().items():
        expected = getattr(made, name).clone()
        if result.dim() > 1:
            own = (chunk if result.dim() == 4 else rows), 1
            assert result[own].isnan().any(), name
            result[own] = expected[own] = 0.0
        assert same_bits(result, expected), name


def test_tensor_memory_is_taken_once_and_two_blocks_share_a_multiprocessor(function, made):
    found = footprint(function.compiled.ptx, function.compiled.cubin)
    assert found.faults == (), "several allocations, columns that stay, or spills"
    assert found.allocated == (256,)
    taken = resources(function)
    assert excesses(taken) == []
    assert 2 * (taken.shared_bytes + RESERVED_BYTES) <= MULTIPROCESSOR_BYTES


def test_borders_have_what_the_tests_above_rely_on():
    assert BORDERS[1] == 150 and chunks().count * HEADS % 2 == 1


def test_what_the_kernel_is_not_made_for():
    with pytest.raises(ValueError, match="K#2 takes up to 128 value channels, a multiple of 8"):
        compile_transform_adjoint(20, True, ABSENT.value)
