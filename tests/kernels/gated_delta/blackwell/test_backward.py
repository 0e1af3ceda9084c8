"""All native stages together, against token-serial autograd in float64."""

import pytest

from lethe_env.kernels.gated_delta.blackwell.backward import NativeBackward
from lethe_env.kernels.gated_delta.blackwell.compilation import BACKWARD
from lethe_env.kernels.gated_delta.chunked import chunked_forward
from lethe_env.kernels.gated_delta.problem import draw_problem, worst_relative_error
from lethe_env.kernels.gated_delta.reference import autograd_backward
from lethe_env.vgpu.cute.function import VirtualFunction
from lethe_env.vgpu.session import Session

pytestmark = pytest.mark.xdist_group("blackwell")
KEYS, VALUES = 128, 64


@pytest.fixture(scope="module")
def session():
    return Session()


@pytest.fixture(scope="module")
def backward(session):
    return NativeBackward(*(VirtualFunction(compile_(VALUES), session) for compile_ in BACKWARD))


def test_gradients_are_those_of_the_recurrence(backward, session):
    """Over three chunks, the last of them not full.

    Operands of products are off by 2⁻¹¹ of themselves, half a unit of float16, and a gradient goes
    through few products: twice that, relative to the largest element, as for the stages in torch.
    """
    p = draw_problem(150, KEYS, VALUES, heads=2, strongest_decay=0.1)
    options = {"scale": p.scale, "initial_state": p.initial_state}
    truth = autograd_backward(*p.inputs, *p.cotangents, **options)
    _, _, saved = chunked_forward(*p.inputs, **options)
    result = backward(saved, *p.cotangents)
    assert session.take_findings() == []
    errors = {
        name: worst_relative_error(ours, theirs)
        for name, ours, theirs in zip(truth._fields, result, truth, strict=True)
    }
    assert 2**-16 < max(errors.values()) < 2 * 2**-11, errors


def test_a_chunk_of_another_length_is_refused(backward):
    p = draw_problem(64, KEYS, VALUES)
    _, _, saved = chunked_forward(*p.inputs, chunk=32)
    with pytest.raises(ValueError, match="chunks of 64 tokens and 128 key channels, not 32"):
        backward(saved, *p.cotangents)
