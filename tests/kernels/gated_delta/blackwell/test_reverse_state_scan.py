"""K#1 as a native kernel, executed by the virtual GPU."""

import pytest
import torch

from lethe_env.kernels.footprint import footprint
from lethe_env.kernels.gated_delta import chunked, stages
from lethe_env.kernels.gated_delta.blackwell.compilation import compile_reverse_state_scan
from lethe_env.kernels.gated_delta.blackwell.native_stages import reverse_state_scan
from lethe_env.vgpu.cute.function import VirtualFunction

from .rounding import operand_error, product_error

BATCH, HEADS, CHUNKS, CHUNK, KEYS = 1, 2, 3, 64, 128
NAMES = ["Qg", "Kg", "Ww", "a", "dO", "dU0", "dS"]


@pytest.fixture(scope="module", params=[64, 128], ids="V{}".format)
def function(request):
    return VirtualFunction(compile_reverse_state_scan(request.param))


@pytest.fixture(scope="module")
def inputs(function):
    """What the scan gets in the backward of a Gated DeltaNet-2; operands are exact in float16."""
    values = function.compiled.parameters[4][1].shape[-1]
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(BATCH, HEADS, CHUNKS, CHUNK, *shape, generator=generator).double()

    q, k = (torch.nn.functional.normalize(draw(KEYS), dim=-1) for _ in range(2))
    g, b = -draw(KEYS).abs() / CHUNK, draw(KEYS).sigmoid()
    decay = stages.decays(g)
    pairs = stages.pair_products(q, k, b * k, decay.span)
    inverse = stages.triangular_inverse(pairs.erasure)
    erase, _ = stages.wy_pair(inverse, b * k * decay.prefix.exp(), draw(values))
    grad_output = stages.half_operand(draw(values))
    found = {
        "Qg": stages.half_operand(q * decay.prefix.exp()),
        "Kg": stages.half_operand(k * decay.suffix.exp()),
        "Ww": stages.half_operand(erase),
        "a": decay.total,
        "dO": grad_output,
        "dU0": (pairs.attention.mT @ grad_output).float().double(),
        "dS": torch.randn(BATCH, HEADS, KEYS, values, generator=generator).double(),
    }
    return {name: found[name] for name in NAMES}


@pytest.fixture(scope="module")
def scan(function, inputs):
    result = reverse_state_scan(function, *inputs.values())
    assert function.session.take_findings() == []
    return result


def test_every_step_follows_from_the_one_before(scan, inputs):
    """From what the kernel itself has stored, only sums in float32 lie between two steps.

    It stores dS before every chunk, and dU, in float32; both enter products as float16.
    """
    states, updates = scan.grad_states.double(), scan.grad_updates.double()
    before = torch.cat([scan.grad_initial.double().unsqueeze(2), states[:, :, :-1]], 2)
    decay = inputs["a"].exp().mT
    for n in range(CHUNKS):
        state, update = states[:, :, n], updates[:, :, n]
        query, key, erase, output = (inputs[name][:, :, n] for name in ("Qg", "Kg", "Ww", "dO"))
        rounded = stages.half_operand(state)
        expected = inputs["dU0"][:, :, n] + key @ rounded
        magnitude = inputs["dU0"][:, :, n].abs() + key.abs() @ rounded.abs()
        assert ((update - expected).abs() <= product_error(magnitude, KEYS)).all()
        rounded = stages.half_operand(update)
        expected = decay[:, :, n] * state + query.mT @ output - erase.mT @ rounded
        magnitude = decay[:, :, n] * state.abs() + query.mT.abs() @ output.abs()
        magnitude += erase.mT.abs() @ rounded.abs()
        error = product_error(magnitude, 2 * CHUNK)
        assert ((before[:, :, n] - expected).abs() <= error).all()
    assert torch.equal(scan.grad_states[:, :, -1].double(), inputs["dS"].float().double())


def test_the_scan_is_that_of_the_reference(scan, inputs):
    """Against float64 with unrounded states: errors of every step, carried through all later ones.

        e_U = |Kg| o(dS)  +  sums          e_S ← exp(a)∘e_S + |Ww|ᵀ o(dU)  +  sums

    where o is the error of what enters as float16, rounding included.
    """
    exact = stages.reverse_state_scan(*inputs.values())
    error = torch.zeros_like(inputs["dS"])
    for n in reversed(range(CHUNKS)):
        state, update = exact.grad_states[:, :, n], exact.grad_updates[:, :, n]
        query, key, erase, output = (
            inputs[name][:, :, n].abs() for name in ("Qg", "Kg", "Ww", "dO")
        )
        assert ((scan.grad_states[:, :, n] - state).abs() <= error + 1e-7 * state.abs()).all()
        entering = operand_error(state, error)
        magnitude = inputs["dU0"][:, :, n].abs() + key @ (state.abs() + entering)
        update_error = key @ entering + product_error(magnitude, KEYS)
        assert ((scan.grad_updates[:, :, n] - update).abs() <= update_error).all()
        entering = operand_error(update, update_error)
        decay = inputs["a"][:, :, n].exp().mT
        magnitude = decay * (state.abs() + error) + query.mT @ output
        magnitude += erase.mT @ (update.abs() + entering)
        error = decay * error + erase.mT @ entering + product_error(magnitude, 2 * CHUNK)
    assert ((scan.grad_initial - exact.grad_initial).abs() <= error).all()


def test_bits_do_not_depend_on_the_schedule(function, inputs, scan):
    session = function.session
    for session.early, session.seed in ((False, 1), (True, 2), (True, 3)):
        again = reverse_state_scan(function, *inputs.values())
        assert all(torch.equal(a, b) for a, b in zip(scan, again, strict=True))
        assert session.take_findings() == []
    session.early = None


def test_one_chunk(function, inputs):
    """The loop's first pass is its last; then the walk of three begins with the same."""
    last = {name: x[:, :, -1:] if name != "dS" else x for name, x in inputs.items()}
    whole = reverse_state_scan(function, *inputs.values())
    one = reverse_state_scan(function, *last.values())
    assert torch.equal(one.grad_initial, whole.grad_states[:, :, -2])
    assert torch.equal(one.grad_updates[:, :, 0], whole.grad_updates[:, :, -1])
    assert function.session.take_findings() == []


def test_tensor_memory_is_taken_once_and_given_back(function):
    found = footprint(function.compiled.ptx, function.compiled.cubin)
    assert found.faults == (), "several allocations, columns that stay, or spills"
    assert found.allocated == (256,)


def test_what_the_kernel_is_not_made_for(function, inputs):
    with pytest.raises(ValueError, match=r"takes \(64, 128\) value channels, not 96"):
        compile_reverse_state_scan(96)
    narrow = {name: x[..., :64] if name in ("Qg", "Kg", "Ww") else x for name, x in inputs.items()}
    with pytest.raises(ValueError, match="64 tokens and 128 key channels, not 64 and 64"):
        reverse_state_scan(function, *narrow.values())


def test_chunks_of_the_chunkwise_form_fit():
    assert chunked.CHUNK == CHUNK
