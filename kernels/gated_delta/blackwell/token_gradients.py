"""The last stage on Blackwell: gradients of what has a key's width, chunks in parallel.

It takes `state_gradients`, dKb of `transform_adjoint`, `inter_chunk_gradients` and
`intra_chunk_gradients` of `stages.py` together, and ends with what autograd wants:

    dq = scale·d(scale·q)      dk = κ + b∘d(b∘k)      db = k∘d(b∘k)      dg

A block takes a chunk, and a thread one key channel of all its tokens, so that warps read and write
packed tokens side by side. Between tokens j < i decays are exp of what lies between them, a product
of two factors at a border between j and i: what is left of the chunk after half of it is cut off
again and again. For the border in the middle of 2n tokens, with k' = k∘(decay to the border) on
the left of it, and q' and x' = (b∘k)' decayed from it on the right,

    P = dA k'        R = dM k'        W = dAᵀ q' + dMᵀ x'

are products of n tokens with n, and give dq += P, d(b∘k) += R and κ += W, each times its token's
decay. The decay of a token on the right is crossed by what comes from the border to the tokens
from it on, and one on the left by what goes to the border from the tokens before it:

    dg_t += Σ_{i≥t} q'∘P + x'∘R   on the right       dg_t += Σ_{j<t} k'∘W   on the left

Borders 32, 16 and 48 have their products made by tensor cores, channels along the lanes. Blocks of
16 tokens are left to the threads, down to single tokens. The states at the chunk's ends are two
borders more, which all tokens are on one side of.

Tensor memory, in columns: what arrives at the queries from 0, at the erase vectors from 64, what
leaves the keys from 128, first from the states, decayed to the border of a token's own block of
16, then from all other blocks; what crosses border 32 at the far blocks from 192. One allocation
of 256 lets two blocks share a multiprocessor.
"""

import math
from typing import NamedTuple

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05
from cutlass.memory import SmemAllocator
from cutlass.utils import blackwell_helpers

from .products import (
    FACTOR_ALIGN_BYTES,
    KEYS,
    OPERAND,
    SUM,
    THREADS,
    TOKENS,
    Factor,
    Product,
    begin,
    commit,
    copies,
    end,
    everyone,
    fetch,
    multiply,
)
from .tensor_memory import after_sync, before_sync, load_row, store_row

COLUMNS = 256
QUERY, ERASED, KEY = 0, TOKENS, 2 * TOKENS
"""Where sums of every token begin."""
BLOCK = 16
BLOCKS = TOKENS // BLOCK
BEYOND = {QUERY: 192, ERASED: 192 + BLOCK, KEY: 192 + 2 * BLOCK}
"""Where those of a far block over border 32 lie: of the last as queries, of the first as keys."""
_FACTORS = (KEYS, BLOCK, 3 * TOKENS)
"""Keys, queries and erase vectors, each four slots of a block, as left factors of products."""
_BARRIERS = 3
_SUMS = (
    (1, False, ((0, 0),)),
    (2, False, ((1, 1), (3, 0))),
    (3, False, ((2, 2),)),
    (3, True, ((1, 1), (3, 0))),
)
"""For blocks as queries: which, whether apart, and what of: slots of keys, and their blocks.

Slot 3 holds the first block's keys, decayed to border 32. As keys, blocks and slots are counted
from the other end."""


class _Stage(NamedTuple):
    """What is known when the kernel is compiled."""

    values: int
    decays: bool
    erases: bool

    @property
    def products(self) -> tuple[Product, ...]:
        """h dOᵀ, dh Uᵀ and h dRᵀ."""
        columns = (QUERY, KEY, ERASED) if self.erases else (QUERY, KEY)
        return tuple(Product(KEYS, self.values, False, False, column, 1) for column in columns)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """h, dO, dh, U, and dR if anything is erased."""
        query, key, *erased = self.products
        pairs = [Factor(product, left) for product in (query, key) for left in (True, False)]
        return *pairs, *(Factor(product, False) for product in erased)

    @property
    def matrices(self) -> tuple[Factor, ...]:
        """dA, and dM if anything is erased."""
        return (Factor(Product(KEYS, TOKENS, False, False, 0, 1), False),) * (1 + self.erases)


def token_gradients(decays: bool, erases: bool):
    """The host function for members that have decays or not, and erase or not.

    What a member has not, it neither reads nor writes; any tensor may be passed.
    """

    @cute.jit
    def host(
        states: cute.Tensor,
        grad_output: cute.Tensor,
        grad_states: cute.Tensor,
        updates: cute.Tensor,
        residual: cute.Tensor,
        grad_attention: cute.Tensor,
        grad_erasure: cute.Tensor,
        starts: cute.Tensor,
        counts: cute.Tensor,
        queries: cute.Tensor,
        keys: cute.Tensor,
        gates: cute.Tensor,
        erase_gates: cute.Tensor,
        grad_queries: cute.Tensor,
        grad_keys: cute.Tensor,
        grad_gates: cute.Tensor,
        grad_erase_gates: cute.Tensor,
        heads: cutlass.Int32,
        scale: cutlass.Float32,
    ):
        """Launch the kernel for all chunks of all sequences and heads.

        C = 64, K = 128 and V = 64 or 128 are known when it is compiled, all else when it is called.
        L = S·H·N chunks, S sequences of N chunks each, those of a head one after the other.

        Args:
            states: h [L, K, V], float16.
            grad_output: dO [L, C, V], float16.
            grad_states: dh [L, K, V], float16.
            updates: U [L, C, V], float16.
            residual: dR [L, C, V], float16.
            grad_attention: dA [L, C, C], float16.
            grad_erasure: dM [L, C, C], float16.
            starts: First token of each chunk [S, N], int32.
            counts: Tokens of each chunk [S, N], int32; what lies behind them is never read.
            queries: q [tokens·H, K'] with K' ≤ K, float16.
            keys: k, likewise.
            gates: g [tokens·H, K'] or [tokens·H, 1], float32.
            erase_gates: b, likewise.
            grad_queries: Takes dq [tokens·H, K'], float16.
            grad_keys: Takes dk, likewise.
            grad_gates: Takes dg [tokens·H, K'], float32.
            grad_erase_gates: Takes db, likewise.
            heads: H.
            scale: Of the queries.
        """
        stage = _Stage(grad_output.shape[2], decays, erases)
        given = [states, grad_output, grad_states, updates]
        given += [residual, grad_attention, grad_erasure] if erases else [grad_attention]
        atoms, sources = copies(stage.factors + stage.matrices, given)
        sequences, chunks = starts.shape
        _kernel(
            atoms, sources, starts, counts, queries, keys, gates, erase_gates,
            grad_queries, grad_keys, grad_gates, grad_erase_gates, heads, scale, stage,
        ).launch(grid=(chunks, heads, sequences), block=(THREADS, 1, 1))  # fmt: skip

    return host


@cute.kernel
def _kernel(
    atoms: tuple[cute.CopyAtom, ...], sources: tuple[cute.Tensor, ...],
    starts: cute.Tensor, counts: cute.Tensor,
    queries: cute.Tensor, keys: cute.Tensor, gates: cute.Tensor, erase_gates: cute.Tensor,
    grad_queries: cute.Tensor, grad_keys: cute.Tensor,
    grad_gates: cute.Tensor, grad_erase_gates: cute.Tensor,
    heads: cutlass.Int32, scale: cutlass.Float32, stage: cutlass.Constexpr,
):  # fmt: skip
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    chunk, head, sequence = cute.arch.block_idx()
    index = (sequence * heads + head) * starts.shape[1] + chunk
    memory = SmemAllocator()
    factors, matrices = stage.factors, stage.matrices
    places, decayed = _places(memory, factors)
    pairs = [matrix.place(memory) for matrix in matrices]
    near = memory.allocate_tensor(SUM, cute.make_layout((BLOCK, BLOCK, BLOCKS, len(pairs))), 16)
    whole = memory.allocate_tensor(SUM, cute.make_layout((KEYS, BLOCKS, 2)), 16)
    block = begin(memory, _BARRIERS, COLUMNS)
    loaded, multiplied, base = block.loaded, block.multiplied, block.base
    if warp == 0:
        first = factors[:2] + factors[4:], atoms[:2] + atoms[4:5], sources[:2] + sources[4:5]
        if cutlass.const_expr(not stage.erases):
            first = factors[:2], atoms[:2], sources[:2]
        fetch(*first, places[:2] + places[4:], index, loaded)
        fetch(factors[2:4], atoms[2:4], sources[2:4], places[2:4], index, loaded + 1)
        last = slice(len(factors), None)
        fetch(matrices, atoms[last], sources[last], pairs, index, loaded + 2)

    inputs, results = (queries, keys, gates, erase_gates), (
        grad_queries, grad_keys, grad_gates, grad_erase_gates,
    )  # fmt: skip
    start, count = starts[sequence, chunk], counts[sequence, chunk]
    own = _channel(inputs, results, start, count, head, heads, thread, scale)
    totals, crossing = whole[thread, None, 0], whole[thread, None, 1]
    totals.fill(1.0)
    crossing.fill(0.0)
    if cutlass.const_expr(stage.decays):
        for number in cutlass.range(BLOCKS):
            _total(own, number, totals)
    if warp == 0:
        cute.arch.mbarrier_wait(loaded, 0)
        cute.arch.mbarrier_wait(loaded + 1, 0)
        lefts, rights = (places[0], places[2], places[0]), (places[1], places[3], *places[4:])
        for product, left, right in zip(stage.products, lefts, rights, strict=False):
            multiply(product, left, right, base)
        commit(multiplied)
    cute.arch.mbarrier_wait(loaded, 0)
    cute.arch.mbarrier_wait(loaded + 1, 0)
    if cutlass.const_expr(stage.decays):
        through = _through(places[0], places[2], thread, stage.values)
        crossing.fill(through * totals[0] * totals[1] * totals[2] * totals[3])
    cute.arch.mbarrier_wait(loaded + 2, 0)
    for number, place in enumerate(pairs):
        _spread(place, near[None, None, None, number], thread - TOKENS * number)
    cute.arch.mbarrier_wait(multiplied, 0)
    # Nobody reads states any more where decayed factors will lie.
    everyone().arrive_and_wait()
    after_sync()
    for number in cutlass.range(BLOCKS):
        _prepare(own, number, totals, crossing, decayed, base, thread, stage)
    cute.arch.fence_view_async_tmem_store()
    cute.arch.fence_proxy("async.shared", space="cta")
    before_sync()
    everyone().arrive_and_wait()
    if warp == 0:
        after_sync()
        _multiply_blocks(pairs, decayed, base)
        commit(multiplied + 1)
    cute.arch.mbarrier_wait(multiplied + 1, 0)
    after_sync()
    for step in cutlass.range(BLOCKS):
        _finish(own, step, totals, crossing, near, base, thread, stage)
    end(block)


def _places(memory, factors):
    """Where TMA brings factors, and where decayed ones lie when those have been used."""
    layout = blackwell_helpers.make_smem_layout_a(_tiled(True), _FACTORS, OPERAND, 1)
    sizes = [cute.cosize(factor.layout().outer) for factor in factors]
    count = max(sum(sizes), cute.cosize(layout.outer))
    region = memory.allocate_array(OPERAND, count, byte_alignment=FACTOR_ALIGN_BYTES)
    places = [factor.at(region + sum(sizes[:n])) for n, factor in enumerate(factors)]
    decayed = cute.make_tensor(cute.recast_ptr(region, layout.inner, OPERAND), layout.outer)
    return places, decayed


def _tiled(across):
    """Products of blocks, with dA and dM as they lie or transposed."""
    return blackwell_helpers.make_trivial_tiled_mma(
        OPERAND, OPERAND, OperandMajorMode.K,
        OperandMajorMode.MN if across else OperandMajorMode.K,
        SUM, tcgen05.CtaGroup.ONE, (KEYS, BLOCK),
    )  # fmt: skip


def _pairs(place, across):
    """dA or dM as a right factor of such products: [(block, block of the sum)]."""
    layout = blackwell_helpers.make_smem_layout_b(
        _tiled(across), (KEYS, TOKENS, TOKENS), OPERAND, 1
    )
    return cute.make_tensor(place.iterator, layout.outer)


class _Line(NamedTuple):
    """One channel of packed tokens."""

    first: cute.Pointer
    """At the first token."""
    step: cutlass.Int64
    """From token to token."""

    def at(self, token):
        return self.first + token * self.step


class _Channel(NamedTuple):
    """What a thread has of a chunk's tokens."""

    inputs: list[_Line]
    """Of q, k, g and b."""
    results: list[_Line]
    """Of dq, dk, dg and db."""
    count: cutlass.Int32
    """Tokens that there are."""
    scale: cutlass.Float32


def _channel(inputs, results, start, count, head, heads, thread, scale):
    """The thread's own channel, which has no tokens if it lies behind the last one."""
    queries, keys, *gates = inputs
    width = queries.shape[1]

    def line(tensor, width):
        # One gate for all channels is read by all threads.
        channel = cutlass.select_(width == 1, 0, thread)
        place = (cutlass.Int64(start) * heads + head) * width + channel
        return _Line(tensor.iterator + place, cutlass.Int64(heads * width))

    count = cutlass.Int32(cutlass.select_(thread < width, count, 0))
    lines = [line(queries, width), line(keys, width), *(line(x, x.shape[1]) for x in gates)]
    return _Channel(lines, [line(x, width) for x in results], count, scale)


class _Tokens(NamedTuple):
    """What a channel has of the tokens of a block; lists of registers."""

    q: list
    """Scaled."""
    k: list
    b: list
    decay: list
    """exp g."""


def _load(own, number, stage):
    """A block's tokens; zeros, and no decay, where there are none."""
    q, k, g, b = own.inputs
    q, k, *gates = _read([q, k] + [g] * stage.decays + [b] * stage.erases, own.count, number)
    decay, erase = [SUM(1.0)] * BLOCK, [SUM(0.0)] * BLOCK
    if stage.decays:
        decay = [_exponential(x) for x in gates.pop(0)]
    if stage.erases:
        (erase,) = gates
    return _Tokens([x * own.scale for x in q], k, erase, decay)


def _read(lines, count, number):
    """A block's tokens of some lines, zeros where there are none."""
    first = number * BLOCK
    rows = [cute.make_rmem_tensor(BLOCK, SUM) for _ in lines]
    _fill(rows, [line.at(first) for line in lines], [line.step for line in lines], count - first)
    return [[row[n] for n in range(BLOCK)] for row in rows]


@cute.jit
def _fill(rows: list, places: list, steps: list, count: cutlass.Int32):
    if count >= BLOCK:
        for row, place, step in zip(rows, places, steps, strict=True):
            for n in cutlass.range_constexpr(BLOCK):
                row[n] = _at(place + n * step)[0].to(SUM)
    else:
        for n in cutlass.range_constexpr(BLOCK):
            for row in rows:
                row[n] = SUM(0.0)
            if n < count:
                for row, place, step in zip(rows, places, steps, strict=True):
                    row[n] = _at(place + n * step)[0].to(SUM)


def _at(place):
    return cute.make_tensor(place, cute.make_layout(1))


def _exponential(x):
    return cute.math.exp2(x * math.log2(math.e), fastmath=True)


def _total(own, number, totals):
    """The decay over a whole block."""
    (gates,) = _read(own.inputs[2:3], own.count, number)
    totals[number] = _exponential(sum(gates, SUM(0.0)))


def _through(states, grad_states, thread, values):
    """Σ_v h∘dh of a channel."""
    total = SUM(0.0)
    for step in range(values // BLOCK):
        state, grad_state = (
            _halves(place[(thread, None), 0, step, 0]) for place in (states, grad_states)
        )
        for n in range(BLOCK):
            total = cute.math.fma(state[n], grad_state[n], total)
    return total


def _halves(place):
    """A block of numbers from shared memory, in float32."""
    row = cute.make_rmem_tensor((BLOCK,), OPERAND)
    cute.autovec_copy(place, row)
    return row.load().to(SUM)


@cute.jit
def _spread(place: cute.Tensor, near: cute.Tensor, token: cutlass.Int32):
    """Put the pairs within blocks where threads read them as float32; a row for each token."""
    if token >= 0 and token < TOKENS:
        row = cute.make_rmem_tensor((BLOCK,), SUM)
        number = token // BLOCK
        row.store(_halves(_pairs(place, False)[(token % BLOCK, None), number, number, 0]))
        cute.autovec_copy(row, near[None, token % BLOCK, number])


def _pick(values, number):
    """One of the registers, one for each block."""
    found = values[BLOCKS - 1]
    for n in reversed(range(BLOCKS - 1)):
        found = SUM(cutlass.select_(number == n, values[n], found))
    return found


def _forth(decay):
    """Decays from the border before some tokens through each of them."""
    found = decay[:1]
    for one in decay[1:]:
        found.append(found[-1] * one)
    return found


def _back(decay):
    """Decays after each of some tokens, to the border behind them."""
    found = [SUM(1.0)]
    for one in reversed(decay[1:]):
        found.append(found[-1] * one)
    return found[::-1]


def _times(left, right):
    return [x * y for x, y in zip(left, right, strict=True)]


def _dot(left, right, total):
    for x, y in zip(left, right, strict=True):
        total = cute.math.fma(x, y, total)
    return total


def _prepare(own, number, totals, crossing, decayed, base, thread, stage):
    """Decay a block's tokens to its borders, and what came of the states from theirs to it.

    What crosses whole blocks between it and the states is added to `crossing`.
    """
    x = _load(own, number, stage)
    forth, back = _forth(x.decay), _back(x.decay)
    keys, queries = _times(x.k, back), _times(x.q, forth)
    erase = _times(_times(x.b, x.k), forth)
    c = [totals[n] for n in range(BLOCKS)]
    entry = _pick([SUM(1.0), c[0], c[0] * c[1], c[0] * c[1] * c[2]], number)
    leave = _pick([c[1] * c[2] * c[3], c[2] * c[3], c[3], SUM(1.0)], number)
    arriving = _dot(queries, _scale(base + QUERY, number, entry, thread), SUM(0.0))
    leaving = _dot(keys, _scale(base + KEY, number, leave, thread), SUM(0.0))
    if stage.erases:
        arriving = _dot(erase, _scale(base + ERASED, number, -entry, thread), arriving)
    if stage.decays:
        for other in range(BLOCKS):
            after = cutlass.select_(other > number, leaving, SUM(0.0))
            crossing[other] += SUM(cutlass.select_(other < number, arriving, after))
    _put(_row(keys), c[1], number, decayed, thread, 0, 0)
    _put(_row(queries), c[2], number, decayed, thread, 1, BLOCKS - 1)
    if stage.erases:
        _put(_row(erase), c[2], number, decayed, thread, 2, BLOCKS - 1)


def _scale(place, number, factor, thread):
    """Multiply a block's columns of tensor memory."""
    place = place + number * BLOCK
    row = cute.make_rmem_tensor(BLOCK, SUM)
    load_row(place, row, thread)
    cute.arch.fence_view_async_tmem_load()
    for n in range(BLOCK):
        row[n] *= factor
    store_row(row, place, thread)
    return [row[n] for n in range(BLOCK)]


def _row(values):
    """Registers in a row."""
    row = cute.make_rmem_tensor(BLOCK, SUM)
    for n, value in enumerate(values):
        row[n] = value
    return row


@cute.jit
def _put(
    row: cute.Tensor, factor: cutlass.Float32, number: cutlass.Int32, decayed: cute.Tensor,
    thread: cutlass.Int32, which: cutlass.Constexpr, far: cutlass.Constexpr,
):  # fmt: skip
    """Put a block where it is a left factor, and the far one decayed to border 32 as well."""
    free = BLOCKS - 1 - far
    if number != free:
        _keep(row, decayed, thread, BLOCKS * which + number)
    if number == far:
        for n in cutlass.range_constexpr(BLOCK):
            row[n] *= factor
        _keep(row, decayed, thread, BLOCKS * which + free)


def _keep(row, decayed, thread, slot):
    halves = cute.make_rmem_tensor((BLOCK,), OPERAND)
    halves.store(row.load().to(OPERAND))
    cute.autovec_copy(halves, decayed[(thread, None), 0, slot, 0])


def _multiply_blocks(pairs, decayed, base):
    """Hand over what blocks of 16 tokens have of others."""
    last = BLOCKS - 1
    for matrix, pair in enumerate(pairs):
        for block, apart, parts in _SUMS:
            column = QUERY + TOKENS * matrix
            place = BEYOND[column] if apart else column + BLOCK * block
            tiled = _tiled(False)
            right = tiled.make_fragment_B(_pairs(pair, False))
            factors = [(slot, right[None, block, source, 0]) for slot, source in parts]
            _add(tiled, decayed, factors, base + place, not apart)
    for block, apart, parts in _SUMS:
        place = BEYOND[KEY] if apart else KEY + BLOCK * (last - block)
        tiled = _tiled(True)
        factors = []
        for matrix, pair in enumerate(pairs):
            right = tiled.make_fragment_B(_pairs(pair, True))
            factors += [
                (BLOCKS * (1 + matrix) + last - slot, right[None, last - block, last - source, 0])
                for slot, source in parts
            ]
        _add(tiled, decayed, factors, base + place, not apart)


def _add(tiled, decayed, factors, place, more):
    """Add products of left factors' slots to what there is, or to nothing."""
    left = tiled.make_fragment_A(decayed)
    layout = tiled.make_fragment_C(tiled.partition_shape_C((KEYS, BLOCK))).layout
    total = cute.make_tensor(place, layout)[None, 0, 0]
    for number, (slot, right) in enumerate(factors):
        tiled.set(tcgen05.Field.ACCUMULATE, more or number > 0)
        cute.gemm(tiled, total, left[None, 0, slot, 0], right, total)


class _Gradients(NamedTuple):
    """Of a block's tokens; lists of registers."""

    query: list
    erased: list
    """Of b∘k."""
    key: list
    """κ"""
    decay: list


def _finish(own, step, totals, crossing, near, base, thread, stage):
    """All gradients of a block's tokens: of the last, the third, the first and the second block."""
    is_right = step < BLOCKS // 2
    number = cutlass.Int32(cutlass.select_(is_right, BLOCKS - 1 - step, step - BLOCKS // 2))
    x = _load(own, number, stage)
    erase = _times(x.b, x.k)
    found = _from_elsewhere(x, erase, number, totals, crossing, base, thread, stage)
    _within(x, erase, found, near[None, None, number, None], 0, BLOCK, stage)
    for n in range(BLOCK):
        erased, b, k = found.erased[n], x.b[n], x.k[n]
        key = cute.math.fma(erased, b, found.key[n]) if stage.erases else found.key[n]
        row = found.query[n] * own.scale, key, found.decay[n], erased * k
        _store(own, number * BLOCK + n, row, stage)


def _from_elsewhere(x, erase, number, totals, crossing, base, thread, stage):
    """Gradients that came from the states and all other blocks, and what is crossed by them."""
    place = number, totals, crossing, base, thread
    key = _sums(x.k, _back(x.decay), KEY, *place)
    decay = [SUM(0.0)] * BLOCK
    _add_crossed_before(decay, x.k, key)
    forth = _forth(x.decay)
    query = _sums(x.q, forth, QUERY, *place)
    erased = [SUM(0.0)] * BLOCK
    if stage.erases:
        erased = _sums(erase, forth, ERASED, *place)
    crossed = crossing[number]
    for n in reversed(range(BLOCK)):
        crossed = cute.math.fma(x.q[n], query[n], crossed)
        if stage.erases:
            crossed = cute.math.fma(erase[n], erased[n], crossed)
        decay[n] += crossed
    return _Gradients(query, erased, key, decay)


def _add_crossed_before(decay, keys, gradients):
    """Add what crosses each token's decay from earlier ones."""
    crossed = keys[0] * gradients[0]
    for n in range(1, len(decay)):
        decay[n] += crossed
        crossed = cute.math.fma(keys[n], gradients[n], crossed)


def _sums(sources, decays, column, number, totals, crossing, base, thread):
    """Gradients of a block, with what comes over border 32 if the block is not next to it."""
    row = cute.make_rmem_tensor(BLOCK, SUM)
    load_row(base + column + number * BLOCK, row, thread)
    cute.arch.fence_view_async_tmem_load()
    for n in range(BLOCK):
        row[n] *= decays[n]
    far, between = (0, 1) if column == KEY else (3, 2)
    place = base + BEYOND[column]
    _add_beyond(row, sources, decays, place, thread, totals, crossing, number == far, between)
    return [row[n] for n in range(BLOCK)]


@cute.jit
def _add_beyond(
    row: cute.Tensor, sources: list, decays: list, place: cute.Pointer, thread: cutlass.Int32,
    totals: cute.Tensor, crossing: cute.Tensor, is_far: cutlass.Boolean,
    between: cutlass.Constexpr,
):  # fmt: skip
    """It crosses the block between as well, whose turn comes next."""
    if is_far:
        more = cute.make_rmem_tensor(BLOCK, SUM)
        load_row(place, more, thread)
        cute.arch.fence_view_async_tmem_load()
        factor, crossed = totals[between], crossing[between]
        for n in cutlass.range_constexpr(BLOCK):
            term = more[n] * (factor * decays[n])
            row[n] += term
            crossed = cute.math.fma(sources[n], term, crossed)
        crossing[between] = crossed


def _within(x, erase, found, near, first, count, stage):
    """Add what tokens have of each other, half of them of the other half first.

    Args:
        x: The block's tokens.
        erase: b∘k
        found: Where to add it.
        near: dA and dM [column, row, matrix].
        first: The first of the tokens.
        count: How many there are.
        stage: What is known of the kernel.
    """
    if count == 1:
        pair = near[first, first, 0]
        found.query[first] = cute.math.fma(pair, x.k[first], found.query[first])
        found.key[first] = cute.math.fma(pair, x.q[first], found.key[first])
        return
    half = count // 2
    middle = first + half
    back, forth = _back(x.decay[first:middle]), _forth(x.decay[middle : first + count])
    leaving = _times(x.k[first:middle], back)
    sums, crossed = [SUM(0.0)] * half, SUM(0.0)
    sources = ((x.q, found.query), (erase, found.erased)) if stage.erases else ((x.q, found.query),)
    for n in reversed(range(half)):
        token = middle + n
        for matrix, (source, into) in enumerate(sources):
            row = cute.local_tile(near[None, token, matrix], (half,), (first // half,))
            pairs = cute.make_rmem_tensor((half,), SUM)
            cute.autovec_copy(row, pairs)
            arrives = _dot([pairs[j] for j in range(half)], leaving, SUM(0.0))
            weight = source[token] * forth[n]
            for j in range(half):
                sums[j] = cute.math.fma(pairs[j], weight, sums[j])
            crossed = cute.math.fma(weight, arrives, crossed)
            into[token] = cute.math.fma(forth[n], arrives, into[token])
        found.decay[token] += crossed
    for n in range(half):
        found.key[first + n] = cute.math.fma(back[n], sums[n], found.key[first + n])
    before = found.decay[first:middle]
    _add_crossed_before(before, leaving, sums)
    found.decay[first:middle] = before
    _within(x, erase, found, near, first, half, stage)
    _within(x, erase, found, near, middle, half, stage)


def _store(own, token, row, stage):
    """Write a token's gradients, if there is a token."""
    wanted = True, True, stage.decays, stage.erases
    kept = [
        (line.at(token), value.to(line.first.value_type))
        for line, value, is_wanted in zip(own.results, row, wanted, strict=True)
        if is_wanted
    ]
    _write([place for place, _ in kept], [value for _, value in kept], token < own.count)


@cute.jit
def _write(places: list, values: list, is_there: cutlass.Boolean):
    if is_there:
        for place, value in zip(places, values, strict=True):
            _at(place)[0] = value
