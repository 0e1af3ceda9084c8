"""The last native stage: against the stages in float64, at ends of sequences, and what it takes."""

from dataclasses import dataclass, fields, replace

import pytest
import torch

from lethe_env.gates.hardware import excesses
from lethe_env.kernels.footprint import footprint
from lethe_env.kernels.gated_delta import stages
from lethe_env.kernels.gated_delta.blackwell.compilation import compile_token_gradients
from lethe_env.kernels.gated_delta.blackwell.execution import compiled_once
from lethe_env.kernels.gated_delta.chunked import join, split
from lethe_env.kernels.gated_delta.chunks import equal_chunks
from lethe_env.kernels.gated_delta.stages import KeyGradients, Pairs
from lethe_env.vgpu.cute.function import VirtualFunction

from .rounding import HALF, SMALLEST_HALF, STEP, operand_error
from .running import SCHEDULES, assert_within, resources

pytestmark = pytest.mark.xdist_group("blackwell")
KEYS, TOKENS, BLOCK = 128, 64, 16
RESERVED_BYTES, MULTIPROCESSOR_BYTES = 1024, 228 << 10
"""Shared memory that every block takes besides its own, and all of it, compute capability 10.0."""
UNIT = 2.0**-24
"""Relative error of one operation of float32."""
LONGEST = 512
"""More operations of float32 than any term of a result goes through one after the other; most are
the sum over V for what flows from one state to the other, and the running sums of dg."""


@dataclass(frozen=True)
class Given:
    """What the stage gets for B sequences of T tokens, in float64; operands exact in float16."""

    q: torch.Tensor
    """[B, T, H, K'], like the next three, with K' ≤ K."""
    k: torch.Tensor
    g: torch.Tensor
    b: torch.Tensor
    states: torch.Tensor
    """[B, H, N, K, V], like `grad_states`."""
    grad_states: torch.Tensor
    grad_output: torch.Tensor
    """[B, H, N, C, V], zero where there is no token, like the next two."""
    updates: torch.Tensor
    residual: torch.Tensor
    grad_attention: torch.Tensor
    """[B, H, N, C, C], like the next."""
    grad_erasure: torch.Tensor
    scale: float = 0.25

    def magnitudes(self, mask=1.0):
        """Everything by its absolute value but log decays; pairs by a mask."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        found = {name: x if name in ("g", "scale") else x.abs() for name, x in found.items()}
        found["residual"] = -found["residual"]
        pairs = "grad_attention", "grad_erasure"
        return Given(**found | {name: mask * found[name] for name in pairs})

    def rows(self):
        """Scaled q, k, b∘k and decays, by chunk."""
        q, k, g, b = (split(x, TOKENS) for x in (self.q, self.k, self.g, self.b))
        return self.scale * q, k, b * k, stages.decays(g)

    def through_states(self):
        width = self.q.shape[-1]
        h, dh = self.states[..., :width, :], self.grad_states[..., :width, :]
        query, key = stages.state_gradients(self.grad_output, self.updates, h, dh)
        q, k, erase, decay = self.rows()
        erased = -self.residual @ h.mT
        return stages.inter_chunk_gradients(q, k, erase, decay, query, key, erased, h, dh)

    def within_chunks(self):
        q, k, erase, decay = self.rows()
        pairs = Pairs(self.grad_attention, self.grad_erasure)
        return stages.intra_chunk_gradients(q, k, erase, decay.span, pairs)

    def gradients(self, of):
        """dq, dk, dg and db [B, T, H, K'] from those of what has a key's width."""
        k, b = split(self.k, TOKENS), split(self.b, TOKENS)
        found = of.query * self.scale, of.key + of.erased * b, of.decay, of.erased * k
        return [join(x, self.q.shape[1]) for x in found]


def draw(values, *, batch=1, length=134, heads=2, keys=KEYS, integers=False):
    generator = torch.Generator().manual_seed(0)

    def some(*shape):
        if integers:
            return torch.randint(-1, 2, shape, generator=generator).double()
        return torch.randn(shape, generator=generator).half().double()

    chunks = -(-length // TOKENS)
    tokens, head = (batch, length, heads, keys), (batch, heads, chunks)
    lower = torch.ones(TOKENS, TOKENS, dtype=torch.float64).tril()
    rows = [split(some(batch, length, heads, values), TOKENS) for _ in range(3)]
    return Given(
        *(some(*tokens) for _ in range(2)),
        -0.1 * some(*tokens).abs().float().double(),
        some(*tokens),
        *(some(*head, KEYS, values) for _ in range(2)),
        *rows,
        some(*head, TOKENS, TOKENS) * lower,
        some(*head, TOKENS, TOKENS) * lower.tril(-1),
    )


def without(x, *, decays=True, erases=True):
    """What a member has that does not decay, or does not erase."""
    if not decays:
        x = replace(x, g=torch.zeros_like(x.g))
    if not erases:
        nothing = {name: 0 * getattr(x, name) for name in ("b", "residual", "grad_erasure")}
        x = replace(x, **nothing)
    return x


def exactly(x):
    parts = zip(x.through_states(), x.within_chunks(), strict=True)
    return x.gradients(KeyGradients(*map(sum, parts)))


def bounds(x):
    """How far each result may be off.

    Between blocks of 16 tokens each product has one decayed factor in float16. Every term is off by
    its decays, at most 64 exponentials one after the other, two of the last place each, and by
    their arguments: a log decay rounded after its multiplication, or a sum of 16. And by sums:
    through V, over up to three blocks of two matrices, and by threads.
    """
    values = x.updates.shape[-1]
    block = torch.arange(TOKENS) // BLOCK
    far = (block[:, None] != block).double()
    everything, beyond = x.magnitudes(), x.magnitudes(far)
    span = split(x.g, TOKENS).nan_to_num(neginf=0.0).sum(-2).abs().max().item()
    relative = (values // BLOCK + 1 + 6) * STEP + (LONGEST + TOKENS * 5 + 18 * span) * UNIT
    total = KeyGradients(
        *(
            (1 + HALF) * relative * (state + pair) + HALF * other + least
            for state, pair, other, least in zip(
                everything.through_states(), everything.within_chunks(), beyond.within_chunks(),
                _least(beyond), strict=True,
            )
        )
    )  # fmt: skip
    found = zip(exactly(x), everything.gradients(total), strict=True)
    return [
        operand_error(exact, bound) if number < 2 else bound
        for number, (exact, bound) in enumerate(found)
    ]


def _least(x):
    """Of products between blocks, whose decayed factors may be subnormal in float16.

    The factor that a token's own decay is in enters its gradient in float32.
    """
    q, k, erase, decay = x.rows()
    pairs = Pairs(x.grad_attention, x.grad_erasure)
    least = torch.full_like(q, SMALLEST_HALF)
    no_decay = decay.span.masked_fill(decay.span > -torch.inf, 0.0)
    of_keys = stages.intra_chunk_gradients(q, least, erase, no_decay, pairs)
    of_queries = stages.intra_chunk_gradients(least, k, least, no_decay, pairs)
    total = split(x.g, TOKENS).exp() * (of_keys.decay + of_queries.decay)
    return KeyGradients(of_keys.query, of_keys.erased, of_queries.key, total)


VARIANTS = [(64, True, True), (128, True, True), (64, True, False), (64, False, True)]


@pytest.fixture(scope="module", params=VARIANTS, ids=str)
def variant(request):
    """Runs the kernel, and for which values, decays and erasing it was compiled."""
    return VirtualFunction(compiled_once(compile_token_gradients, *request.param)), *request.param


@pytest.fixture(scope="module")
def function():
    return VirtualFunction(compiled_once(compile_token_gradients, 64, True, True))


def arguments(function, x, *, per_head=""):
    """What the host function takes, and the results among it, NaN so far.

    Args:
        function: Whose arguments they are.
        x: What is given.
        per_head: Gates of which only the first channel is passed.
    """
    batch, length, heads, width = x.q.shape
    chunks = equal_chunks(batch, length, TOKENS, x.q.device)

    def rows(y):
        return join(y, length).half().reshape(batch * length, heads, -1)

    def matrices(y):
        return y.half().transpose(1, 2).flatten(0, 2)

    states, grad_states = (matrices(y[..., :width, :]) for y in (x.states, x.grad_states))
    operands = [states, rows(x.grad_output), rows(x.residual), grad_states, rows(x.updates)]
    operands += [matrices(x.grad_attention), matrices(x.grad_erasure)]
    for number in (2, 6):
        if len(function.compiled.parameters[number][1].shape) == 1:
            operands[number] = torch.zeros(1).half()
    tokens = [y.half().reshape(-1, width) for y in (x.q, x.k)]
    tokens += [
        y[..., : 1 if name in per_head else width].float().reshape(batch * length * heads, -1)
        for name, y in (("g", x.g), ("b", x.b))
    ]
    results = [torch.full_like(y, torch.nan) for y in (tokens[0], tokens[0])]
    results += [torch.full(results[0].shape, torch.nan) for _ in range(2)]
    given = [y.contiguous() for y in operands]
    return [*given, chunks.starts, chunks.stops, *tokens, *results, x.scale], results


def run(function, x, **options):
    """dq, dk, dg and db; those of gates that the function was not compiled for are NaN."""
    given, results = arguments(function, x, **options)
    for result in results:
        function.session.memory.mark_undefined(result)
    function(*given)
    findings = function.session.take_findings()
    assert not findings, findings
    return [result.view(x.q.shape) for result in results]


def assert_right(function, x, decays=True, erases=True):
    wanted = True, True, decays, erases
    for result, exact, bound, is_wanted in zip(
        run(function, x), exactly(x), bounds(x), wanted, strict=True
    ):
        if is_wanted:
            assert_within(result, exact, bound)
        else:
            assert result.isnan().all(), "what the member has not is not written"


def test_gradients_are_those_of_the_stages_in_float64(variant):
    """Three chunks, the last of 6 tokens."""
    function, values, *has = variant
    x = without(draw(values), decays=has[0], erases=has[1])
    assert_right(function, x, *has)


def test_sequences_of_one_chunk(function):
    assert_right(function, draw(64, batch=3, length=17, heads=1))


def test_without_decays_small_integers_are_exact(function):
    """As every sum is representable: each product is where it belongs."""
    x = without(draw(64, length=TOKENS, heads=1, integers=True), decays=False)
    x = replace(x, scale=1.0)
    for result, exact in zip(run(function, x), exactly(x), strict=True):
        assert torch.equal(result.double(), exact)


def test_strong_decays_and_hard_resets(function):
    """Gradients of strong decays are small, and so are their errors; nothing flows over −inf."""
    x = draw(64, length=TOKENS, heads=1)
    gates = x.g.clone()
    gates[0, 20:30:3] = -18.0
    gates[0, (0, 33, 48, 63), :, :64] = -torch.inf
    x = replace(x, g=gates)
    assert_right(function, x)
    _, _, decay, _ = run(function, x)
    assert not decay[0, (0, 33, 48, 63), :, :64].any()


def test_a_gate_per_head_is_that_in_every_channel(function):
    x = draw(64, length=20)
    x = replace(x, **{name: getattr(x, name)[..., :1].expand_as(x.q) for name in "gb"})
    for one, other in zip(run(function, x, per_head="gb"), run(function, x), strict=True):
        assert torch.equal(one, other)


def test_narrow_keys_and_values_are_those_of_wide_ones(function):
    """Beyond them lies what belongs to others; TMA fills in zeros, which add nothing."""
    wide = draw(64, length=20)
    values = "grad_output", "updates", "residual", "states", "grad_states"
    narrow = {name: getattr(wide, name)[..., :40] for name in "qkgb"}
    narrow |= {name: getattr(wide, name)[..., :24].clone() for name in values}
    for name in values:
        getattr(wide, name)[..., 24:] = 0.0
    for one, other in zip(run(function, replace(wide, **narrow)), run(function, wide), strict=True):
        assert torch.equal(one, other[..., :40])


def test_nothing_beyond_a_sequence_is_read_or_written(function):
    """The second sequence is full of NaN, and the first one's chunk ends within a block."""
    x = draw(64, batch=2, length=70)
    plain = run(function, x)
    for tensor in (getattr(x, f.name) for f in fields(x) if f.name != "scale"):
        tensor[1] = torch.nan
    for result, expected in zip(run(function, x), plain, strict=True):
        assert torch.equal(result[0], expected[0])


def test_a_chunk_of_no_tokens_writes_nothing(function):
    given, results = arguments(function, draw(64, length=TOKENS))
    starts, stops = given[7:9]
    stops.copy_(starts)
    function(*given)
    assert all(result.isnan().all() for result in results)


def test_bits_do_not_depend_on_the_schedule(function):
    x, session = draw(64), function.session
    found = []
    for session.early, session.seed in SCHEDULES:
        found.append(run(function, x))
    session.early = None
    for schedule, other in zip(SCHEDULES[1:], found[1:], strict=True):
        assert all(map(torch.equal, found[0], other)), schedule


def test_tensor_memory_is_taken_once_and_given_back(variant):
    compiled = variant[0].compiled
    found = footprint(compiled.ptx, compiled.cubin)
    assert found.faults == (), "several allocations, columns that stay, or spills"
    assert found.allocated == (256,)


def test_a_block_fits_and_for_64_value_channels_two(variant):
    function, values, *_ = variant
    run(function, draw(values, length=1))
    taken = resources(function)
    assert excesses(taken) == []
    both_bytes = 2 * (taken.shared_bytes + RESERVED_BYTES)
    assert (both_bytes <= MULTIPROCESSOR_BYTES) == (values == 64)


def test_what_the_kernel_is_not_made_for():
    with pytest.raises(ValueError, match=r"tiles of \(64, 128\) value channels, not 96"):
        compile_token_gradients(96, True, True)
