"""Every stage of the kernels against the stage of the same name, not only what comes out last."""

import pytest
import torch

from lethe_env.kernels.gated_delta import forward_pass
from lethe_env.kernels.gated_delta.backward_pass import run_backward
from lethe_env.kernels.gated_delta.chunked import chunked_backward, chunked_forward, join
from lethe_env.kernels.gated_delta.chunks import equal_chunks, ragged_chunks
from lethe_env.kernels.gated_delta.forward_pass import run_forward
from lethe_env.kernels.gated_delta.problem import draw_problem, worst_relative_error
from lethe_env.kernels.gated_delta.setting import CHUNKS, Tokens, setting_for

LENGTH = 70
WITHIN = 1e-5  # as in test_operation.py, for float32 operands

pytestmark = [pytest.mark.usefixtures("virtual_gpu"), pytest.mark.xdist_group("gated_delta")]


def packed(x):
    return x.float().reshape(-1, *x.shape[2:]).contiguous()


def by_token(x):
    """[B, H, N, C, D] → [tokens, H, D], as kernels lay it out."""
    return join(x, LENGTH).flatten(0, 1)


def by_chunk(x):
    """[1, H, N, …] → [chunks, H, …]."""
    return x[0].transpose(0, 1)


def test_every_stage_is_what_it_is_named_after():
    p = draw_problem(LENGTH, 16, 16, heads=2).to(torch.float32).to(torch.float64)
    chunk = CHUNKS[torch.float32]
    options = {"scale": p.scale, "initial_state": p.initial_state}
    output, final, saved = chunked_forward(*p.inputs, **options, chunk=chunk)
    tokens = Tokens(*map(packed, p.inputs))
    setting = setting_for(tokens, equal_chunks(1, LENGTH, chunk, torch.device("cpu")), p.scale)
    ours, our_final, scratch = run_forward(tokens, setting, p.initial_state.float())
    wanted = {
        "query_decayed": by_token(saved.q * saved.decay.prefix.exp()),
        "key_decayed": by_token(saved.k * saved.decay.suffix.exp()),
        "erase_transformed": by_token(saved.erase_transformed),
        "chunk_decay": by_chunk(saved.decay.total.squeeze(-2).exp()),
        "attention": by_chunk(saved.pairs.attention),
        "inverse": by_chunk(saved.inverse),
        "updates": by_token(saved.scan.updates),
        "states": by_chunk(saved.scan.states),
    }
    assert {*wanted, "strange"} == set(scratch._fields) and not scratch.strange.any()
    for name, truth in wanted.items():
        assert worst_relative_error(getattr(scratch, name), truth) < WITHIN, name
    assert worst_relative_error(ours, output.flatten(0, 1)) < WITHIN
    assert worst_relative_error(our_final, final) < WITHIN
    gradients = chunked_backward(saved, *p.cotangents)
    results = run_backward(
        tokens, setting, scratch, packed(p.grad_output), p.grad_final_state.float()
    )
    for name, ours, truth in zip(results._fields, results, gradients, strict=True):
        assert worst_relative_error(ours.view(truth.shape), truth) < WITHIN, name


def test_only_a_chunk_that_is_not_finite_is_run_token_by_token():
    """The scale's products round: what is left of them must not be taken for a NaN."""
    p = draw_problem(LENGTH, 16, 16, heads=2)
    p.v[:, 40, 1, 3] = torch.nan
    tokens = Tokens(*map(packed, p.inputs))
    chunks = equal_chunks(1, LENGTH, CHUNKS[torch.float32], torch.device("cpu"))
    setting = setting_for(tokens, chunks, 0.3)
    _, inverse = forward_pass._pairs(tokens, setting)
    made = forward_pass._transform(tokens, inverse, setting)
    assert made.strange.tolist() == [[0, 0], [0, 1], [0, 0]]


def test_no_chunk_crosses_the_border_of_a_sequence():
    borders = torch.tensor([0, 70, 70, 71, 135])
    chunks = ragged_chunks(borders, 64)
    assert chunks.starts.tolist() == [0, 64, 70, 71]
    assert chunks.stops.tolist() == [64, 70, 71, 135]
    assert chunks.first_chunks.tolist() == [0, 2, 2, 3, 4]
    equal = equal_chunks(2, 70, 64, torch.device("cpu"))
    ragged = ragged_chunks(torch.tensor([0, 70, 140]), 64)
    for name in ("starts", "stops", "first_chunks"):
        assert torch.equal(getattr(equal, name), getattr(ragged, name))
