"""K#1 as a native kernel, executed by the virtual GPU, over sequences of different lengths."""

from dataclasses import replace

import pytest
import torch

from lethe_env.gates.hardware import excesses
from lethe_env.kernels.footprint import footprint
from lethe_env.kernels.gated_delta import chunked, stages
from lethe_env.kernels.gated_delta.blackwell.compilation import CHUNK, compile_reverse_state_scan
from lethe_env.kernels.gated_delta.blackwell.native_stages import reverse_state_scan
from lethe_env.kernels.gated_delta.device import ABSENT, PER_CHANNEL
from lethe_env.kernels.gated_delta.forward_pass import Scratch
from lethe_env.kernels.gated_delta.setting import Setting
from lethe_env.vgpu.cute.function import VirtualFunction

from .packed import HEADS, by_chunk, by_token, chunks, drawing, sequences
from .rounding import operand_error, product_error
from .running import (
    assert_bits_do_not_depend_on_the_schedule,
    assert_within,
    resources,
    run,
    same_bits,
)

pytestmark = pytest.mark.xdist_group("blackwell")
KEYS = 128
NARROW = 48, 24
"""Key and value channels of which the kernel has more."""


def made_for(values, keys=KEYS, erases=True):
    return VirtualFunction(compile_reverse_state_scan(keys, values, erases))


@pytest.fixture(scope="module", params=[64, 128], ids="V{}".format)
def function(request):
    return made_for(request.param)


def drawn(values, keys=KEYS, erases=True):
    """What the scan gets in the backward of a Gated DeltaNet-2, and the operands by chunk."""
    draw, generator = drawing()
    places = chunks()
    setting = Setting(
        HEADS, keys, values, torch.float16, 1.0, places, PER_CHANNEL.value,
        PER_CHANNEL.value if erases else ABSENT.value, ABSENT.value,
    )  # fmt: skip
    q, k = (by_chunk(torch.nn.functional.normalize(draw(keys), dim=-1)) for _ in range(2))
    g, b = by_chunk(-draw(keys).abs() / CHUNK), by_chunk(draw(keys).sigmoid())
    decay = stages.decays(g)
    pairs = stages.pair_products(q, k, b * k, decay.span)
    inverse = stages.triangular_inverse(pairs.erasure)
    erase, _ = stages.wy_pair(inverse, b * k * decay.prefix.exp(), q)
    ends = torch.randn(setting.end_shape, generator=generator)
    kept = Scratch(
        *(by_token(x).half() for x in (q * decay.prefix.exp(), k * decay.suffix.exp(), erase)),
        decay.total.exp().squeeze(-2).float(),
        pairs.attention.half(),
        inverse.half(),
        by_token(by_chunk(draw(values))).half(),
        torch.zeros(setting.state_shape).half(),
        torch.zeros(setting.grid, dtype=torch.int32),
    )
    return kept, draw(values).half(), ends, setting


@pytest.fixture(scope="module")
def given(function):
    return drawn(function.compiled.parameters[5][1].shape[-1])


@pytest.fixture(scope="module")
def scan(function, given):
    return run(function, reverse_state_scan, *given)


def exactly(given):
    """Qg, Kg, Ww, exp(a_C), A and dO, each [chunks, H, …], in float64."""
    kept, grad_output, _, _ = given
    rows = (kept.query_decayed, kept.key_decayed, kept.erase_transformed)
    query, key, erase = (by_chunk(x.double()) for x in rows)
    decay, attention = kept.chunk_decay.double().unsqueeze(-1), kept.attention.double()
    return query, key, erase, decay, attention, by_chunk(grad_output.double())


def test_every_step_follows_from_what_the_kernel_has_stored(scan, given):
    """dU and the rounded dS are what enters products; the unrounded dS adds up in float32."""
    states, updates = scan.grad_states.double(), scan.grad_updates.double()
    for sequence, numbers in sequences():
        state = given[2][sequence].double()
        error = torch.zeros_like(state)
        for n in numbers:
            query, key, erase, decay, attention, output = (x[n] for x in exactly(given))
            assert_within(states[n], state, operand_error(state, error))
            expected = attention.mT @ output + key @ states[n]
            magnitude = attention.abs().mT @ output.abs() + key.abs() @ states[n].abs()
            bound = operand_error(expected, product_error(magnitude, CHUNK + KEYS))
            assert_within(updates[n], expected, bound)
            magnitude = decay * (state.abs() + error) + query.abs().mT @ output.abs()
            magnitude += erase.abs().mT @ updates[n].abs()
            state = decay * state + query.mT @ output - erase.mT @ updates[n]
            error = decay * error + product_error(magnitude, 2 * CHUNK)
        assert_within(scan.grad_initial[sequence], state, error)


def test_the_scan_is_that_of_the_reference(scan, given):
    """Against float64 with unrounded states: errors of every step, carried through all later ones.

        e_U = |Kg| o(dS)  +  sums          e_S ← exp(a)∘e_S + |Ww|ᵀ o(dU)  +  sums

    where o is the error of what enters as float16, rounding included.
    """
    operands = exactly(given)
    for sequence, numbers in sequences():
        some = slice(numbers[-1], numbers[0] + 1) if numbers else slice(0)
        query, key, erase, decay, attention, output = (
            x[some].transpose(0, 1).unsqueeze(0) for x in operands
        )
        final = given[2][sequence].double().unsqueeze(0)
        if numbers:
            exact = stages.reverse_state_scan(
                query, key, erase, decay.log().mT, output, attention.mT @ output, final
            )
        error = torch.zeros_like(final[0])
        for n in numbers:
            state, update = (x[0, :, n - numbers[-1]] for x in exact[:2])
            query, key, erase, decay, attention, output = (x[n].abs() for x in operands)
            entering = operand_error(state, error)
            assert_within(scan.grad_states[n], state, entering)
            magnitude = attention.mT @ output + key @ (state.abs() + entering)
            update_error = key @ entering + product_error(magnitude, CHUNK + KEYS)
            assert_within(scan.grad_updates[n], update, operand_error(update, update_error))
            entering = operand_error(update, update_error)
            magnitude = decay * (state.abs() + error) + query.mT @ output
            magnitude += erase.mT @ (update.abs() + entering)
            error = decay * error + erase.mT @ entering + product_error(magnitude, 2 * CHUNK)
        initial = exact.grad_initial[0] if numbers else final[0]
        assert_within(scan.grad_initial[sequence], initial, error)


def test_bits_do_not_depend_on_the_schedule(function, given):
    assert_bits_do_not_depend_on_the_schedule(function, reverse_state_scan, *given)


def test_no_gradient_of_the_final_states_is_one_of_zero(function, given):
    kept, grad_output, final, setting = given
    zero = run(function, reverse_state_scan, kept, grad_output, torch.zeros_like(final), setting)
    none = run(function, reverse_state_scan, kept, grad_output, None, setting)
    assert all(map(torch.equal, zero, none))


def test_where_nothing_is_erased_ww_is_not_read():
    kept, grad_output, final, setting = drawn(64, erases=False)
    without = kept._replace(erase_transformed=torch.zeros(1).half())
    zero = kept._replace(erase_transformed=torch.zeros_like(kept.erase_transformed))
    rest = grad_output, final, setting
    found = run(made_for(64, erases=False), reverse_state_scan, without, *rest)
    assert all(map(torch.equal, found, run(made_for(64), reverse_state_scan, zero, *rest)))


def test_narrow_channels_are_as_if_others_were_zero():
    """Beyond them TMA fills in zeros, and nothing is written."""
    keys, values = NARROW
    kept, grad_output, final, setting = drawn(values, keys)
    found = run(made_for(values, keys), reverse_state_scan, kept, grad_output, final, setting)

    def wide(x, more_keys=0, more_values=0):
        return torch.nn.functional.pad(x, (0, more_values, 0, more_keys))

    more = KEYS - keys
    padded = kept._replace(
        **{name: torch.nn.functional.pad(getattr(kept, name), (0, more)) for name in
           ("query_decayed", "key_decayed", "erase_transformed", "chunk_decay")},
        states=wide(kept.states, more, 64 - values),
    )  # fmt: skip
    expected = run(
        made_for(64), reverse_state_scan, padded, wide(grad_output, 0, 64 - values),
        wide(final, more, 64 - values), replace(setting, key_dim=KEYS, value_dim=64),
    )  # fmt: skip
    assert torch.equal(found.grad_states, expected.grad_states[..., :keys, :values])
    assert torch.equal(found.grad_updates, expected.grad_updates[..., :values])
    assert torch.equal(found.grad_initial, expected.grad_initial[..., :keys, :values])


def test_heads_and_sequences_do_not_see_each_other(function, given):
    """NaN in every token of a head of the first sequence, and in the chunks' matrices."""
    kept, grad_output, final, setting = given
    plain = run(function, reverse_state_scan, *given)
    spoilt = kept._replace(
        **{name: getattr(kept, name).clone() for name in
           ("query_decayed", "key_decayed", "erase_transformed", "attention", "chunk_decay")}
    )  # fmt: skip
    grad_output = grad_output.clone()
    tokens, numbers = slice(0, 150), slice(0, 3)
    for rows in (*spoilt[:3], grad_output):
        rows[tokens, 1] = torch.nan
    for matrices in (spoilt.attention, spoilt.chunk_decay):
        matrices[numbers, 1] = torch.nan
    found = run(function, reverse_state_scan, spoilt, grad_output, final, setting)
    for result, expected, own in zip(found, plain, (numbers, numbers, slice(1)), strict=True):
        assert result[own, 1].isnan().any()
        for x in (result, expected):
            x[own, 1] = 0.0
        assert same_bits(result, expected)


def test_tensor_memory_is_taken_once_and_given_back(function, scan):
    found = footprint(function.compiled.ptx, function.compiled.cubin)
    assert found.faults == (), "several allocations, columns that stay, or spills"
    assert found.allocated == (256,)
    assert excesses(resources(function)) == []


def test_what_the_kernel_is_not_made_for():
    for widths, which in (((128, 20), "128 value"), ((136, 64), "128 key"), ((128, 136), "value")):
        with pytest.raises(ValueError, match=rf"{which} channels, a multiple of 8, not"):
            compile_reverse_state_scan(*widths, True)


def test_chunks_of_the_chunkwise_form_fit():
    assert chunked.CHUNK == CHUNK
