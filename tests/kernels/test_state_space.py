"""What all four state-space operations owe: exact references, and kernels within rounding."""

from __future__ import annotations

import pytest
import torch

from .state_space import EXACT, OPERATIONS, error_ratios, output, results, schedule, weights

pytestmark = pytest.mark.xdist_group("state space kernels")
EVERY = pytest.mark.parametrize("name", list(OPERATIONS))
WEIGHTS = ("mix_in", "mix_out", "conv_weight")
DTYPES = (torch.float16, torch.float32, torch.bfloat16)


def doubled(operation, *sizes):
    return {name: tensor.double() for name, tensor in operation.draw(2, *sizes).items()}


def distance(value, expected):
    return float((value - expected).abs().max() / expected.abs().max().clamp(min=1))


@EVERY
@pytest.mark.parametrize("length", [1, 2, 33])
def test_two_forms_of_a_reference_agree(name, length):
    operation = OPERATIONS[name]
    operands = doubled(operation, length)
    serial = operation.reference.serial(*operands.values())
    other = getattr(operation.reference, operation.other_form)(*operands.values())
    assert distance(other, serial) < EXACT


@EVERY
@pytest.mark.parametrize("length", [1, 2, 33])
def test_the_reverse_recurrence_is_the_gradient(name, length):
    operation = OPERATIONS[name]
    leaves = [tensor.requires_grad_() for tensor in doubled(operation, length).values()]
    y = operation.reference.serial(*leaves)
    dy = weights(y).double()
    by_autograd = torch.autograd.grad(y, leaves, dy)
    by_hand = operation.reference.gradients(*(leaf.detach() for leaf in leaves), dy)
    for derived, expected in zip(by_hand, by_autograd, strict=True):
        assert distance(derived, expected) < EXACT


@EVERY
def test_a_reference_refuses_reduced_precision(name):
    operation = OPERATIONS[name]
    operands = list(operation.draw(1, 3).values())
    for form in ("serial", operation.other_form):
        with pytest.raises(TypeError, match="float64 reference"):
            getattr(operation.reference, form)(*operands)


@EVERY
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 2), (1, 16), (2, 33)])
def test_values_and_every_gradient_are_within_rounding(gpu, name, batch, length):
    operation = OPERATIONS[name]
    operands = operation.draw(batch, length)
    ratios = error_ratios(operation, operands, results(operation, operands, schedule()))
    assert max(ratios.values()) < 1, ratios


@EVERY
def test_segments_side_by_side_are_within_rounding(gpu, name):
    operation = OPERATIONS[name]
    operands = operation.draw(2, 33)
    got = results(operation, operands, schedule(segment=16))
    ratios = error_ratios(operation, operands, got)
    assert max(ratios.values()) < 1, ratios


@EVERY
def test_a_half_type_costs_one_rounding(gpu, name):
    operation = OPERATIONS[name]
    operands = {key: tensor.bfloat16() for key, tensor in operation.draw(1, 19).items()}
    got = results(operation, operands, schedule())
    assert {value.dtype for value in got.values()} == {torch.bfloat16}
    ratios = error_ratios(operation, operands, got)
    assert max(ratios.values()) < 1, ratios


@EVERY
def test_dtypes_may_be_mixed(gpu, name):
    operation = OPERATIONS[name]
    operands = operation.draw(1, 19)
    for number, operand in enumerate(operands):
        operands[operand] = operands[operand].to(DTYPES[number % 3])
    got = results(operation, operands, schedule())
    for operand, tensor in operands.items():
        assert got[operand].dtype == tensor.dtype
    ratios = error_ratios(operation, operands, got)
    assert max(ratios.values()) < 1, ratios


@EVERY
def test_five_runs_give_the_same_bytes(gpu, name):
    """In shuffled orders of programs, which the virtual GPU changes from launch to launch."""
    operation = OPERATIONS[name]
    operands = operation.draw(2, 33)
    first, *others = [results(operation, operands, schedule(segment=16)) for _ in range(5)]
    for other in others:
        assert all(torch.equal(first[key], other[key]) for key in first)


@EVERY
@pytest.mark.parametrize("segment", [16, 1024])
def test_the_past_does_not_depend_on_the_future(gpu, name, segment):
    operation, cut = OPERATIONS[name], 20
    operands = operation.draw(1, 33)
    later = operation.draw(1, 33, seed=5)
    along_time = [key for key, t in operands.items() if t.ndim >= 3 and key not in WEIGHTS]
    changed = dict(operands)
    for key in along_time:
        start = cut + operands[key].shape[1] - 33
        changed[key] = torch.cat([operands[key][:, :start], later[key][:, start:]], 1)
    plan = schedule(segment=segment)
    before, after = (output(operation, given, plan) for given in (operands, changed))
    assert torch.equal(before[:, :cut], after[:, :cut])
    assert not torch.equal(before[:, cut:], after[:, cut:])


@EVERY
def test_views_of_larger_tensors_are_read_in_place(gpu, name):
    operation = OPERATIONS[name]
    operands = operation.draw(2, 18)
    views = {key: torch.cat([t, t], -1)[..., : t.shape[-1]] for key, t in operands.items()}
    turned = {key: t.transpose(0, -1).clone().transpose(0, -1) for key, t in operands.items()}
    dense = results(operation, operands, schedule())
    for other in (views, turned):
        got = results(operation, other, schedule())
        assert all(torch.equal(dense[key], got[key]) for key in dense)


@EVERY
def test_offsets_do_not_overflow(gpu, name, monkeypatch):
    """Tokens two billion elements apart: the memory in between is reserved and never touched."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    operation = OPERATIONS[name]
    operands = {key: t.to(torch.bfloat16) for key, t in operation.draw(1, 2, seed=3).items()}
    key = operation.output
    dense, apart = operands[key], 2**31 + 32
    storage = torch.empty((dense.shape[1] - 1) * apart + dense[0, 0].numel(), dtype=dense.dtype)
    strides = (0, apart, *dense.stride()[2:])
    sparse = torch.as_strided(storage, dense.shape, strides)
    sparse.copy_(dense)
    expected = output(operation, operands, schedule())
    assert torch.equal(output(operation, {**operands, key: sparse}, schedule()), expected)


@EVERY
def test_a_shape_that_does_not_fit_is_named(name):
    operation = OPERATIONS[name]
    operands = operation.draw(2, 9)
    for key, tensor in operands.items():
        longer = torch.cat([tensor, tensor], -1)
        with pytest.raises(ValueError, match=name):
            operation.kernel(**{**operands, key: longer[None]})
        if (name, key) != ("rotary_scan", "x"):  # whose last size is its own
            with pytest.raises(ValueError, match=f"{name}: .*(shape|tokens|pairs)"):
                operation.kernel(**{**operands, key: longer})


@EVERY
def test_a_dtype_that_is_not_taken_is_named(name):
    operation = OPERATIONS[name]
    operands = operation.draw(1, 3)
    operands["B"] = operands["B"].double()
    with pytest.raises(TypeError, match=r"B is torch\.float64"):
        operation.kernel(**operands)
