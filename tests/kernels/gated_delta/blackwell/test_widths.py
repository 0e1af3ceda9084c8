"""Channels that TMA does not take, on their way to a backward and back."""

import torch

from lethe_env.kernels.gated_delta.backward_pass import PackedGradients
from lethe_env.kernels.gated_delta.blackwell.widths import fits, run_widened
from lethe_env.kernels.gated_delta.chunks import equal_chunks
from lethe_env.kernels.gated_delta.forward_pass import Scratch
from lethe_env.kernels.gated_delta.setting import Tokens, setting_for

HEADS, LENGTH, KEYS, VALUES, STEP = 2, 70, 20, 12, 8


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def own_inputs(t, s, kept, grad_output, grad_final):
    """As if gradients were what they are of: a backward that shows what it was given."""
    assert (s.key_dim, s.value_dim) == (24, 16) and fits(s, STEP)
    assert kept.states.shape == s.state_shape and kept.updates.shape == t.v.shape
    assert kept.query_decayed.shape == t.q.shape and grad_output.shape == t.v.shape
    assert kept.inverse.shape == (1,)
    for x, width in ((t.q, KEYS), (t.g, KEYS), (t.v, VALUES), (grad_output, VALUES)):
        assert not x[..., width:].any() and x[..., :width].all()
    for states in (kept.states, grad_final):
        assert not states[..., VALUES:].any() and not states[:, :, KEYS:].any()
    b = t.b.unsqueeze(-1).expand(t.k.shape)
    return PackedGradients(t.q, t.k, t.v, t.g, b, torch.zeros(1), grad_final)


def test_what_went_in_comes_out():
    k, v = draw(LENGTH, HEADS, KEYS), draw(LENGTH, HEADS, VALUES)
    tokens = Tokens(k, k, v, -k.abs(), draw(LENGTH, HEADS), None)
    chunks = equal_chunks(1, LENGTH, 64, k.device)
    setting = setting_for(tokens, chunks, 1.0)
    stub, states = torch.zeros(1), draw(chunks.count, HEADS, KEYS, VALUES)
    strange = torch.zeros(setting.grid, dtype=torch.int32)
    kept = Scratch(k, k, stub, states[..., 0], states, stub, v, states, strange)
    final = draw(1, HEADS, KEYS, VALUES)
    assert not fits(setting, STEP)
    found = run_widened(own_inputs, STEP, tokens, setting, kept, v, final)
    expected = (k, k, v, tokens.g, tokens.b.unsqueeze(-1).expand(k.shape), stub, final)
    assert all(map(torch.equal, found, expected))
    assert all(x.is_contiguous() for x in found)
