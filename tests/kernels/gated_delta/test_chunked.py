"""The chunkwise form is the recurrence, in either form of every stage that has two."""

import pytest
import torch

from lethe_env.kernels.gated_delta import stages
from lethe_env.kernels.gated_delta.chunked import chunked_backward, chunked_forward
from lethe_env.kernels.gated_delta.problem import draw_problem, worst_relative_error
from lethe_env.kernels.gated_delta.reference import Gradients, autograd_backward, serial_forward

AGREEMENT = 1e-12
SIZES = [(150, 16, 12, 64), (5, 8, 8, 64), (64, 8, 24, 16), (1, 4, 4, 64), (65, 16, 8, 64)]


def options(problem):
    return {"scale": problem.scale, "initial_state": problem.initial_state}


def agree(result, truth):
    for name, ours, theirs in zip(Gradients._fields, result, truth, strict=True):
        assert worst_relative_error(ours, theirs) < AGREEMENT, name


@pytest.mark.parametrize("length, key_dim, value_dim, chunk", SIZES)
def test_chunks_give_what_tokens_give(length, key_dim, value_dim, chunk):
    p = draw_problem(length, key_dim, value_dim, heads=2, seed=length)
    output, final, saved = chunked_forward(*p.inputs, **options(p), chunk=chunk)
    expected, expected_final = serial_forward(*p.inputs, **options(p))
    assert worst_relative_error(output, expected) < AGREEMENT
    assert worst_relative_error(final, expected_final) < AGREEMENT
    truth = autograd_backward(*p.inputs, *p.cotangents, **options(p))
    for seven_products in (False, True):
        for by_difference in (False, True):
            result = chunked_backward(
                saved,
                *p.cotangents,
                seven_products=seven_products,
                decay_by_difference=by_difference,
            )
            agree(result, truth)


def test_nothing_to_erase_makes_the_transform_the_identity():
    p = draw_problem(100, 16, 8)
    *others, b, w = p.inputs
    _, _, saved = chunked_forward(*others, torch.zeros_like(b), w, **options(p))
    assert torch.equal(saved.inverse, torch.eye(64, dtype=b.dtype).expand_as(saved.inverse))


@pytest.mark.parametrize("strongest_decay", [5.0, 100.0, 1e4])
def test_no_decay_overflows_or_loses_its_gradient(strongest_decay):
    """Where running sums are subtracted, dg of a strong decay is their rounding error."""
    p = draw_problem(70, 8, 8, strongest_decay=strongest_decay)
    truth = autograd_backward(*p.inputs, *p.cotangents, **options(p))
    _, _, saved = chunked_forward(*p.inputs, **options(p))
    agree(chunked_backward(saved, *p.cotangents), truth)


def test_a_reset_inside_a_chunk_is_exact():
    p = draw_problem(70, 8, 8)
    p.g[:, 20] = -torch.inf
    p.g[:, 40, :, 3] = -torch.inf
    truth = autograd_backward(*p.inputs, *p.cotangents, **options(p))
    _, _, saved = chunked_forward(*p.inputs, **options(p))
    agree(chunked_backward(saved, *p.cotangents), truth)


def test_one_huge_decay_does_not_spoil_the_others():
    """In float32, 1e4 and a later span of 0.1 cannot be told apart by their running sums."""
    p = draw_problem(64, 8, 8)
    p.g[:, 10] = -1e4
    exact = stages.decays(p.g.transpose(1, 2)).span.exp()
    rounded = stages.decays(p.g.float().transpose(1, 2)).span.exp()
    visible = exact > 1e-30
    error = ((rounded.double() - exact).abs() / exact)[visible].max()
    assert error < 64 * 2**-24 * (1 + 64 * 0.3)  # terms of a span, and exp's condition


@pytest.mark.parametrize("strength", [1.0, 2.0])
def test_equal_keys_do_not_spoil_the_inverse(strength):
    """All entries of M equal: its powers reach 1e17, its inverse stays at 2."""
    erasure = torch.full((64, 64), strength, dtype=torch.float64).tril(-1)
    truth = torch.linalg.solve_triangular(
        torch.eye(64, dtype=torch.float64) + erasure,
        torch.eye(64, dtype=torch.float64),
        upper=False,
        unitriangular=True,
    )
    for inverse in (stages.triangular_inverse, stages.blocked_inverse):
        assert worst_relative_error(inverse(erasure), truth) < AGREEMENT
        assert worst_relative_error(inverse(erasure.float()), truth) < 64 * 2**-24


def test_half_operands_keep_three_digits():
    """Half a unit of float16 for each of a few products, relative to the largest element."""
    p = draw_problem(128, 32, 16, strongest_decay=0.1)
    truth = autograd_backward(*p.inputs, *p.cotangents, **options(p))
    single = p.to(torch.float32)
    _, _, saved = chunked_forward(*single.inputs, **options(single), operand=stages.half_operand)
    result = chunked_backward(saved, *single.cotangents, operand=stages.half_operand)
    errors = [
        worst_relative_error(ours, theirs) for ours, theirs in zip(result, truth, strict=True)
    ]
    assert 2**-16 < max(errors) < 1e-3
