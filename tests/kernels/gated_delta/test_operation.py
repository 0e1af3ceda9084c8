"""The kernels against the float64 oracle, on the virtual GPU, and hazards known from the field.

Errors are relative to the largest element. With float32 operands 1e-5 is 160 units of 2^-24: sums
of some 64 terms, twice nested, and exp's condition. With float16 operands 1e-3 is two units of
2^-11, with bfloat16 eight times as much.
"""

import itertools
from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl

from lethe_env.kernels import cute_dsl
from lethe_env.kernels.gated_delta import gated_delta
from lethe_env.kernels.gated_delta.backward_pass import run_backward
from lethe_env.kernels.gated_delta.blackwell import natively, natively_or_in_triton
from lethe_env.kernels.gated_delta.chunks import equal_chunks
from lethe_env.kernels.gated_delta.device import matrix_offsets, row_offsets, state_offsets
from lethe_env.kernels.gated_delta.problem import draw_problem, worst_relative_error
from lethe_env.kernels.gated_delta.reference import Gradients, serial_backward, serial_forward
from lethe_env.kernels.gated_delta.setting import CHUNKS, Tokens, setting_for

WITHIN = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}

pytestmark = [
    pytest.mark.usefixtures("virtual_gpu"),
    pytest.mark.xdist_group("gated_delta"),  # one worker translates each kernel once
]


def run(p, dtype=torch.float32, **options):
    """Outputs, final state and gradients of the kernels."""
    tokens = [x.to(dtype).requires_grad_() for x in p.inputs[:3]]
    rest = [x.float().requires_grad_() for x in (*p.inputs[3:], p.initial_state)]
    output, final = gated_delta(*tokens, *rest[:3], scale=p.scale, initial_state=rest[3], **options)
    cotangents = (p.grad_output.to(dtype), p.grad_final_state.float())
    gradients = torch.autograd.grad((output, final), (*tokens, *rest), cotangents)
    return output.detach(), final.detach(), Gradients(*gradients)


def truth(p):
    options = {"scale": p.scale, "initial_state": p.initial_state}
    output, final = serial_forward(*p.inputs, **options)
    return output, final, serial_backward(*p.inputs, *p.cotangents, **options)


def rounded(p, dtype):
    """The problem as the kernels see it: the oracle is not charged for rounding the inputs."""
    return p.to(dtype).to(torch.float64)


def assert_near(result, expected, bound):
    output, final, gradients = result
    wanted_output, wanted_final, wanted = expected
    assert worst_relative_error(output, wanted_output) < bound
    assert worst_relative_error(final, wanted_final) < bound
    for name, ours, theirs in zip(Gradients._fields, gradients, wanted, strict=True):
        assert worst_relative_error(ours, theirs) < bound, name


def small(length, **options):
    return draw_problem(length, 16, 16, heads=2, **options)


@pytest.mark.parametrize("length", [1, 5, 63, 64, 65, 130])
def test_any_length_with_initial_state_and_final_gradient(length):
    p = rounded(small(length, batch=2, seed=length), torch.float32)
    assert_near(run(p), truth(p), WITHIN[torch.float32])


def test_half_operands_and_widths_that_are_no_power_of_two():
    p = rounded(draw_problem(200, 48, 20, heads=3, strongest_decay=0.1), torch.float16)
    assert_near(run(p, torch.float16), truth(p), WITHIN[torch.float16])


@pytest.mark.parametrize("strongest_decay", [5.0, 100.0])
def test_no_decay_overflows(strongest_decay):
    p = rounded(small(130, strongest_decay=strongest_decay), torch.float32)
    assert_near(run(p), truth(p), WITHIN[torch.float32])


def test_a_strong_decay_has_a_gradient_with_small_relative_error():
    """Where dg is a difference of running sums, it is their rounding error beyond g = −16."""
    p = small(70)
    p.g[:, 20:30] = -18.0
    p = rounded(p, torch.float32)
    wanted = truth(p)[2].g[:, 20:30]
    result = run(p)[2].g[:, 20:30]
    assert wanted.abs().max() < 2**-22
    assert worst_relative_error(result, wanted) < WITHIN[torch.float32]


def test_a_hard_reset_and_one_huge_decay():
    p = small(130)
    p.g[:, 20] = -torch.inf
    p.g[:, 70, :, 3] = -torch.inf
    p.g[:, 90] = -1e4
    p = rounded(p, torch.float32)
    result = run(p)
    assert_near(result, truth(p), WITHIN[torch.float32])
    assert not result[2].g[:, 20].any()


def test_equal_keys():
    """The inverse of a matrix whose powers reach 1e17."""
    p = small(64)
    p.k[:] = p.k[:, :1]
    p.b.fill_(1.0)
    p.g.fill_(0.0)
    p = rounded(p, torch.float32)
    assert_near(run(p), truth(p), WITHIN[torch.float32])


def test_the_future_does_not_reach_the_past():
    p = rounded(small(130), torch.float32)
    later = replace(p, **{name: getattr(p, name).clone() for name in "qkvgbw"})
    for name in "qkvbw":
        getattr(later, name)[:, 40:] *= 0.5
    later.g[:, 40:] *= 7.0
    assert torch.equal(run(p)[0][:, :40], run(later)[0][:, :40])


def test_equal_calls_give_equal_bits():
    p = rounded(small(130), torch.float32)
    first, second = run(p), run(p)
    for one, two in zip((*first[:2], *first[2]), (*second[:2], *second[2]), strict=True):
        assert torch.equal(one, two)


def test_packed_sequences_are_each_as_if_alone():
    lengths = (70, 1, 0, 59)
    p = small(130)
    states = torch.cat([0.3 * (i + 1) * p.initial_state for i in range(len(lengths))])
    whole = replace(p, initial_state=states, grad_final_state=states.flip(1))
    borders = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])
    output, final, gradients = run(whole, cu_seqlens=borders)
    for index, (begin, end) in enumerate(itertools.pairwise(borders)):
        if begin == end:
            assert torch.equal(final[index], states[index].float())
            continue
        cut = {name: getattr(p, name)[:, begin:end] for name in (*"qkvgbw", "grad_output")}
        state = {"initial_state": states[index : index + 1]}
        alone = replace(p, **cut, **state, grad_final_state=whole.grad_final_state[index][None])
        one_output, one_final, one_gradients = run(alone)
        assert torch.equal(output[:, begin:end], one_output)
        assert torch.equal(final[index : index + 1], one_final)
        for name in "qkvgbw":
            ours, theirs = getattr(gradients, name)[:, begin:end], getattr(one_gradients, name)
            assert torch.equal(ours, theirs), name
        ours = gradients.initial_state[index : index + 1]
        assert torch.equal(ours, one_gradients.initial_state)


MEMBERS = {
    "LA": (torch.float16, ("", "", "")),
    "GLA": (torch.float16, ("channel", "", "")),
    "SSD": (torch.bfloat16, ("head", "", "")),
    "KDA": (torch.float16, ("channel", "head", "head")),
}
"""Dtype of the operands, and how many values each of g, b, w has: none, one a head, a channel."""


def member_gates(p, kinds):
    """The gates that a member has, by name; b and w are one tensor if both are per head."""
    given = {}
    for name, full, kind in zip("gbw", p.inputs[3:], kinds, strict=True):
        if kind:
            given[name] = full if kind == "channel" else full[..., 0]
    if kinds[1:] == ("head", "head"):
        given["w"] = given["b"]
    return given


def leaves_of(p, given, dtype, gate_dtype):
    """Tokens and gates as leaves of a graph; a gate given twice is one leaf."""
    unique = {id(x): x.to(gate_dtype).clone().requires_grad_() for x in given.values()}
    tokens = [x.to(dtype).requires_grad_() for x in p.inputs[:3]]
    return tokens, {name: unique[id(x)] for name, x in given.items()}, list(unique.values())


def in_full(gates, p):
    """g, b and w per channel, as the reference wants them."""
    absent = {"g": torch.zeros_like(p.g), "b": torch.zeros_like(p.b), "w": torch.ones_like(p.w)}
    for name, default in absent.items():
        gate = gates.get(name, default)
        yield gate.unsqueeze(-1).expand_as(default) if gate.dim() == 3 else gate


@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_has_its_own_gradients(member):
    """Gates that are absent, or one a head: another branch of every kernel, graded by itself."""
    dtype, kinds = MEMBERS[member]
    p = rounded(small(70), dtype)
    given = member_gates(p, kinds)
    tokens, gates, unique = leaves_of(p, given, torch.float64, torch.float64)
    expected, _ = serial_forward(*tokens, *in_full(gates, p), scale=p.scale)
    wanted = torch.autograd.grad(expected, [*tokens, *unique], p.grad_output)
    tokens, gates, unique = leaves_of(p, given, dtype, torch.float32)
    output, _ = gated_delta(*tokens, **gates, scale=p.scale)
    result = torch.autograd.grad(output, [*tokens, *unique], p.grad_output.to(dtype))
    for ours, theirs in zip((output, *result), (expected, *wanted), strict=True):
        assert worst_relative_error(ours.detach(), theirs.detach()) < WITHIN[dtype]


def test_gates_of_zero_and_one_are_gates_that_are_absent():
    p = small(70)
    tokens = [x.half() for x in p.inputs[:3]]
    zero, one = torch.zeros_like(p.b).half(), torch.ones_like(p.w).half()
    absent, _ = gated_delta(*tokens, p.g[..., 0])
    present, _ = gated_delta(*tokens, p.g[..., :1].expand_as(p.g).clone(), zero, one)
    assert torch.equal(absent, present)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_goes_where_the_definition_sends_it(value):
    p = small(70)
    p.v[:, 40, 0, 3] = value
    p = rounded(p, torch.float32)
    expected, expected_final, _ = truth(p)
    output, final, _ = run(p)
    for ours, theirs in ((output, expected), (final, expected_final)):
        assert torch.equal(ours.isnan(), theirs.isnan())
        finite = theirs.isfinite()
        assert 0 < finite.sum() < finite.numel()
        bound = WITHIN[torch.float32]
        assert worst_relative_error(ours[finite], theirs[finite]) < bound


def assert_alike(ours, theirs, bound):
    """The same elements are NaN, the same are infinite, and the others are near."""
    assert torch.equal(ours.isnan(), theirs.isnan())
    assert torch.equal(ours.isposinf(), theirs.isposinf())
    assert torch.equal(ours.isneginf(), theirs.isneginf())
    finite = theirs.isfinite()
    if finite.any():
        assert worst_relative_error(ours[finite], theirs[finite]) < bound


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("where", ["q", "k", "v", "g", "b", "w", "grad_output"])
def test_gradients_that_are_not_finite_are_those_of_the_definition(where, value):
    p = small(70)
    getattr(p, where)[:, 40, 0, 3] = -value if where == "g" else value
    p = rounded(p, torch.float32)
    _, _, wanted = truth(p)
    _, _, gradients = run(p)
    assert not all(x.isfinite().all() for x in wanted) or (where, value) == ("g", torch.inf)
    for name, ours, theirs in zip(Gradients._fields, gradients, wanted, strict=True):
        for head in range(2):
            axis = 1 if name == "initial_state" else 2
            one, other = ours.select(axis, head), theirs.select(axis, head)
            assert_alike(one, other, WITHIN[torch.float32])


def test_a_nan_in_the_gradient_of_the_final_state_goes_where_the_definition_sends_it():
    p = small(70)
    p.grad_final_state[0, 0, 3, 5] = torch.nan
    p = rounded(p, torch.float32)
    _, _, wanted = truth(p)
    _, _, gradients = run(p)
    assert gradients.v.isnan().any() and gradients.v[:, :, 1].isfinite().all()
    for ours, theirs in zip(gradients, wanted, strict=True):
        assert_alike(ours, theirs, WITHIN[torch.float32])


@triton.jit
def offsets_kernel(rows, matrices, states, index, heads, key_dim, value_dim):
    lane = tl.arange(0, 16)
    token = index + tl.zeros((16,), tl.int32)
    at = lane[:, None] * 16 + lane[None, :]
    tl.store(rows + at, row_offsets(token, 1, heads, key_dim, lane))
    tl.store(matrices + at, matrix_offsets(index, 1, heads, lane, lane, 64))
    tl.store(states + at, state_offsets(index, 1, heads, lane, lane, key_dim, value_dim))


def test_offsets_pass_two_to_the_thirty_one():
    """A million chunks of 64 heads: every offset is exact though each index fits 32 bits."""
    index, heads, key_dim, value_dim = 2**20 + 3, 64, 128, 96
    rows, matrices, states = (torch.empty(16, 16, dtype=torch.int64) for _ in range(3))
    offsets_kernel[(1,)](rows, matrices, states, index, heads, key_dim, value_dim)
    down, across = torch.arange(16).unsqueeze(1), torch.arange(16)
    lane = index * heads + 1
    assert torch.equal(rows, (lane * key_dim + across).expand(16, 16))
    assert torch.equal(matrices, (lane * 64 + down) * 64 + across)
    assert torch.equal(states, (lane * key_dim + down) * value_dim + across)
    assert min(x.min() for x in (rows, matrices, states)) > 2**31


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


@pytest.mark.parametrize(
    "arguments, options, error, message",
    [
        ([ones(1, 2, 1, 4)] * 2 + [ones(1, 2, 1, 4).half()], {}, TypeError, "one dtype"),
        ([ones(1, 2, 1, 4).double()] * 3, {}, TypeError, "float32, float16 or bfloat16"),
        ([ones(2, 1, 4)] * 3, {}, ValueError, r"\[B, T, H, K\] alike"),
        ([ones(1, 2, 1, 4), ones(1, 2, 1, 4), ones(1, 2, 2, 4)], {}, ValueError, "v must be"),
        ([ones(1, 2, 1, 300)] * 3, {}, ValueError, "at most 256"),
        ([ones(1, 0, 1, 4)] * 3, {}, ValueError, "nothing to do"),
        ([ones(1, 2, 1, 4)] * 3 + [ones(1, 2, 1, 3)], {}, ValueError, "g has shape"),
        (
            [ones(1, 2, 1, 4)] * 3,
            {"initial_state": ones(2, 1, 4, 4)},
            ValueError,
            "initial_state has shape",
        ),
        ([ones(2, 2, 1, 4)] * 3, {"cu_seqlens": torch.tensor([0, 2])}, ValueError, "B = 1"),
        ([ones(1, 3, 1, 4)] * 3, {"cu_seqlens": torch.tensor([0, 2])}, ValueError, "ascend"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(arguments, options, error, message):
    with pytest.raises(error, match=message):
        gated_delta(*arguments, **options)


def setting(dtype=torch.float16, keys=128, values=128):
    chunks = equal_chunks(1, 1, CHUNKS[dtype], torch.device("cpu"))
    q, v = (torch.empty(1, 1, width, dtype=dtype) for width in (keys, values))
    return setting_for(Tokens(q, q, v, None, None, None), chunks, 1.0)


@pytest.mark.parametrize(
    "sizes, limit",
    [
        ({"dtype": torch.bfloat16}, "q, k and v in float16, not bfloat16"),
        ({"keys": 129}, "at most 128 key channels, not 129"),
        ({"values": 130}, "at most 128 value channels, not 130"),
    ],
)
def test_what_the_native_backward_does_not_take_is_refused_or_done_in_triton(sizes, limit):
    with pytest.raises(ValueError, match=rf"takes {limit}; .* backward=natively_or_in_triton"):
        natively(setting(**sizes))
    assert natively_or_in_triton(setting(**sizes)) is run_backward


def test_the_native_backward_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="in float16, not float32"):
        gated_delta(*[ones(1, 2, 1, 4)] * 3, backward=natively)


@pytest.mark.parametrize("choose", [natively, natively_or_in_triton])
def test_without_the_dsl_the_native_backward_says_how_to_get_it(choose, monkeypatch):
    monkeypatch.setattr(cute_dsl, "is_installed", lambda: False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'lethe_env\[blackwell\]'"):
        choose(setting())
