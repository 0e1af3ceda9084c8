"""The last stage on Blackwell: gradients of what has a key's width, chunks in parallel.

It is `state_gradients`, dKb of `transform_adjoint`, `inter_chunk_gradients` and
`intra_chunk_gradients` of `stages.py` in one, and the gates after them:

    dq = scale·d(scale·q)      dk = κ + b∘d(b∘k)      db = k∘d(b∘k)      dg

A block takes a chunk, and a thread one key channel of all its tokens, `channel.py`, so that warps
read and write packed tokens side by side. What decays between tokens j < i is a product of two
factors at a border between them, and a border is in the middle of the chunk, of its halves, and so
on. For one in the middle of 2n tokens, with k' = k∘(decay to it) on the left of it, and q' and
x' = (b∘k)' decayed from it on the right,

    P = dA k'        R = dM k'        W = dAᵀ q' + dMᵀ x'

add to dq, d(b∘k) and κ what they are times the token's own decay from or to the border. They say
what crosses the tokens' decays as well, with nothing to be subtracted:

    dg_t += Σ_{i≥t} q'∘P + x'∘R   on the right       dg_t += Σ_{j<t} k'∘W   on the left

Tensor cores make the products for borders 32, 16 and 48, channels along the lanes; blocks of 16
tokens are left to the threads, down to two tokens. The states at both ends are further borders,
which all tokens are on one side of:

    dQgᵀ = h dOᵀ       dKgᵀ = dh Uᵀ       dKbᵀ = −h dRᵀ        [K, C], sums over V

First come these products; threads decay them and the tokens to the borders of the blocks of 16;
then come those between blocks, and threads do the rest. Decayed tokens are left factors in shared
memory, in float16, where states and token rows were.

Tensor memory, in columns: the sums of all tokens as queries from 0, as erase vectors from 64 and as
keys from 128; from 192 those of a block that is not next to border 32, over it. One allocation of
256 lets two blocks share a multiprocessor.
"""

from typing import NamedTuple

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05
from cutlass.memory import SmemAllocator
from cutlass.utils import blackwell_helpers

from .channel import (
    BEYOND,
    BLOCK,
    BLOCKS,
    COLUMNS,
    ERASED,
    KEY,
    QUERY,
    add_total,
    block_of,
    channel_of,
    finish,
    prepare,
    through_states,
)
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
from .tensor_memory import after_sync, before_sync
from .token_rows import matrices, place_of, rows_before

_DECAYED = (KEYS, BLOCK, 3 * TOKENS)
"""Of decayed keys, queries and erase vectors, each four slots of a block, as left factors."""
_SUMS = (
    (1, False, ((0, 0),)),
    (2, False, ((1, 1), (3, 0))),
    (3, False, ((2, 2),)),
    (3, True, ((1, 1), (3, 0))),
)
"""What blocks get as queries: which block, whether beyond a border, and of what: slots of keys, and
which block's they are. Slot 3 holds the first block's keys, decayed to border 32. As keys, blocks
and slots count from the other end."""


class _Stage(NamedTuple):
    """What is known when the kernel is compiled."""

    values: int
    decays: bool
    erases: bool

    @property
    def products(self) -> tuple[Product, ...]:
        """h dOᵀ, then h dRᵀ if anything is erased, and dh Uᵀ."""
        columns = (QUERY, ERASED, KEY) if self.erases else (QUERY, KEY)
        return tuple(Product(KEYS, self.values, False, False, column, 1) for column in columns)

    @property
    def groups(self) -> tuple[tuple[Factor, ...], ...]:
        """What TMA brings together: h, dO and dR; dh and U; dA and dM."""
        *at_entry, at_exit = self.products
        rows = tuple(Factor(product, False) for product in at_entry)
        matrix = Factor(Product(KEYS, TOKENS, False, False, 0, 1), False)
        return (
            (Factor(at_entry[0], True), *rows),
            (Factor(at_exit, True), Factor(at_exit, False)),
            (matrix,) * len(rows),
        )

    def grouped(self, items):
        """Items, one for each factor, group by group."""
        items = iter(items)
        return [[next(items) for _ in group] for group in self.groups]


def token_gradients(values: int, decays: bool, erases: bool):
    """The host function for tiles of 64 or 128 value channels, and members of all kinds.

    What a member has not, it neither reads nor writes; any tensor may be passed.
    """

    @cute.jit
    def host(
        states: cute.Tensor,
        grad_output: cute.Tensor,
        residual: cute.Tensor,
        grad_states: cute.Tensor,
        updates: cute.Tensor,
        grad_attention: cute.Tensor,
        grad_erasure: cute.Tensor,
        starts: cute.Tensor,
        stops: cute.Tensor,
        queries: cute.Tensor,
        keys: cute.Tensor,
        gates: cute.Tensor,
        erase_gates: cute.Tensor,
        grad_queries: cute.Tensor,
        grad_keys: cute.Tensor,
        grad_gates: cute.Tensor,
        grad_erase_gates: cute.Tensor,
        scale: cutlass.Float32,
    ):
        """Launch the kernel for all chunks of all sequences and heads.

        C = 64, and tiles of 128 key channels and so many value channels, are known when it is
        compiled, all else when it is called; K and V are multiples of 8. Chunks of all sequences
        and heads are L, those of a chunk's heads one after the other.

        Args:
            states: h [L, K, V], float16.
            grad_output: dO [tokens, H, V], float16.
            residual: dR [tokens, H, V], float16.
            grad_states: dh [L, K, V], float16.
            updates: U [tokens, H, V], float16.
            grad_attention: dA [L, C, C], float16.
            grad_erasure: dM [L, C, C], float16.
            starts: First token of each chunk, as of `Chunks`.
            stops: The token after its last; what lies behind it is never read.
            queries: q [tokens·H, K], float16.
            keys: k, likewise.
            gates: g [tokens·H, K] or [tokens·H, 1], float32.
            erase_gates: b, likewise.
            grad_queries: Takes dq [tokens·H, K], float16.
            grad_keys: Takes dk, likewise.
            grad_gates: Takes dg [tokens·H, K], float32.
            grad_erase_gates: Takes db, likewise.
            scale: Of the queries.
        """
        stage = _Stage(values, decays, erases)
        given = [matrices(states), rows_before(grad_output)]
        if cutlass.const_expr(erases):
            given = [*given, rows_before(residual)]
        given = [*given, matrices(grad_states), rows_before(updates), matrices(grad_attention)]
        if cutlass.const_expr(erases):
            given = [*given, matrices(grad_erasure)]
        factors = [factor for group in stage.groups for factor in group]
        atoms, sources = copies(factors, given)
        heads = updates.shape[1]
        token_gradients_kernel(
            atoms, sources, starts, stops, (queries, keys, gates, erase_gates),
            (grad_queries, grad_keys, grad_gates, grad_erase_gates), heads, scale, stage,
        ).launch(grid=(starts.shape[0], heads, 1), block=(THREADS, 1, 1))  # fmt: skip

    return host


@cute.kernel
def token_gradients_kernel(
    atoms: tuple[cute.CopyAtom, ...], sources: tuple[cute.Tensor, ...],
    starts: cute.Tensor, stops: cute.Tensor, inputs: tuple[cute.Tensor, ...],
    results: tuple[cute.Tensor, ...], heads: cutlass.Int32, scale: cutlass.Float32,
    stage: cutlass.Constexpr,
):  # fmt: skip
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    chunk, head, _ = cute.arch.block_idx()
    place = place_of(chunk, head, heads, starts, stops)
    memory = SmemAllocator()
    places, decayed = _places(memory, stage)
    near = memory.allocate_tensor(SUM, cute.make_layout((BLOCK, BLOCK, BLOCKS, 2)), 16)
    whole = memory.allocate_tensor(SUM, cute.make_layout((KEYS, BLOCKS, 2)), 16)
    block = begin(memory, len(stage.groups), COLUMNS)
    loaded, multiplied, base = block.loaded, block.multiplied, block.base
    groups = list(
        zip(stage.groups, stage.grouped(atoms), stage.grouped(sources), places, strict=True)
    )
    if warp == 0:
        for number, group in enumerate(groups):
            fetch(*group, (place,), loaded + number)

    first = cutlass.Int64(place.start) * heads + head
    own = channel_of(inputs, results, first, heads, place.count, scale, thread, stage)
    own = own._replace(
        base=base, decayed=decayed, near=near,
        totals=whole[thread, None, 0], crossing=whole[thread, None, 1],
    )  # fmt: skip
    own.totals.fill(1.0)
    own.crossing.fill(0.0)
    if cutlass.const_expr(stage.decays):
        for number in cutlass.range(BLOCKS):
            add_total(own, number)
    if warp == 0:
        cute.arch.mbarrier_wait(loaded, 0)
        cute.arch.mbarrier_wait(loaded + 1, 0)
        _multiply_states(stage, places, base)
        commit(multiplied)
    for number in cutlass.range_constexpr(len(stage.groups)):
        cute.arch.mbarrier_wait(loaded + number, 0)
    if cutlass.const_expr(stage.decays):
        through_states(own, places[0][0], places[1][0], stage.values)
    for number, matrix in enumerate(places[2]):
        _spread(matrix, near[None, None, None, number], thread - TOKENS * number)
    cute.arch.mbarrier_wait(multiplied, 0)
    # From here on nobody reads states and token rows, and decayed tokens may take their place.
    everyone().arrive_and_wait()
    after_sync()
    for number in cutlass.range(BLOCKS):
        prepare(own, number)
    cute.arch.fence_view_async_tmem_store()
    cute.arch.fence_proxy("async.shared", space="cta")
    before_sync()
    everyone().arrive_and_wait()
    if warp == 0:
        after_sync()
        _multiply_blocks(places[2], decayed, base)
        commit(multiplied + 1)
    cute.arch.mbarrier_wait(multiplied + 1, 0)
    after_sync()
    for step in cutlass.range(BLOCKS):
        finish(own, block_of(step))
    end(block)


def _places(memory, stage):
    """Where TMA brings factors, and where decayed tokens will lie, in place of the first ones."""
    at_entry, at_exit, pairs = stage.groups
    factors = at_entry + at_exit
    layout = blackwell_helpers.make_smem_layout_a(_tiled(True), _DECAYED, OPERAND, 1)
    sizes = [cute.cosize(factor.layout().outer) for factor in factors]
    count = max(sum(sizes), cute.cosize(layout.outer))
    region = memory.allocate_array(OPERAND, count, byte_alignment=FACTOR_ALIGN_BYTES)
    decayed = cute.make_tensor(cute.recast_ptr(region, layout.inner, OPERAND), layout.outer)
    places = [factor.at(region + sum(sizes[:n])) for n, factor in enumerate(factors)]
    places += [factor.place(memory) for factor in pairs]
    return stage.grouped(places), decayed


def _multiply_states(stage, places, base):
    """Hand over the products with the states."""
    (states, *rows), (grad_states, updates), _ = places
    *at_entry, at_exit = stage.products
    for product, row in zip(at_entry, rows, strict=True):
        multiply(product, states, row, base)
    multiply(at_exit, grad_states, updates, base)


@cute.jit
def _spread(place: cute.Tensor, near: cute.Tensor, token: cutlass.Int32):
    """Put dA or dM within blocks where threads read it as float32; a row for each token."""
    if token >= 0 and token < TOKENS:
        number, line = token // BLOCK, token % BLOCK
        row = cute.make_rmem_tensor((BLOCK,), OPERAND)
        wide = cute.make_rmem_tensor((BLOCK,), SUM)
        cute.autovec_copy(_pairs(place, False)[(line, None), number, number, 0], row)
        wide.store(row.load().to(SUM))
        cute.autovec_copy(wide, near[None, line, number])


def _tiled(across):
    """Products of blocks, with dA and dM as they lie or transposed."""
    return blackwell_helpers.make_trivial_tiled_mma(
        OPERAND, OPERAND, OperandMajorMode.K,
        OperandMajorMode.MN if across else OperandMajorMode.K,
        SUM, tcgen05.CtaGroup.ONE, (KEYS, BLOCK),
    )  # fmt: skip


def _pairs(place, across):
    """dA or dM as right factors of such products: [(column, depth), block, block of the sum]."""
    layout = blackwell_helpers.make_smem_layout_b(
        _tiled(across), (KEYS, TOKENS, TOKENS), OPERAND, 1
    )
    return cute.make_tensor(place.iterator, layout.outer)


def _multiply_blocks(matrices, decayed, base):
    """Hand over the products between blocks."""
    last = BLOCKS - 1
    for block, beyond, parts in _SUMS:
        as_key = []
        for number, matrix in enumerate(matrices):
            as_query = [(slot, matrix, block, source) for slot, source in parts]
            place = BEYOND[QUERY + TOKENS * number] if beyond else BLOCK * block + TOKENS * number
            _add(False, decayed, as_query, base + place, not beyond)
            first = BLOCKS * (number + 1)
            as_key += [
                (first + last - slot, matrix, last - block, last - source) for slot, source in parts
            ]
        place = BEYOND[KEY] if beyond else KEY + BLOCK * (last - block)
        _add(True, decayed, as_key, base + place, not beyond)


def _add(across, decayed, parts, place, more):
    """Add products of slots and blocks of matrices to what there is, or to nothing."""
    tiled = _tiled(across)
    left = tiled.make_fragment_A(decayed)
    layout = tiled.make_fragment_C(tiled.partition_shape_C((KEYS, BLOCK))).layout
    total = cute.make_tensor(place, layout)[None, 0, 0]
    for number, (slot, matrix, block, source) in enumerate(parts):
        right = tiled.make_fragment_B(_pairs(matrix, across))[None, block, source, 0]
        tiled.set(tcgen05.Field.ACCUMULATE, more or number > 0)
        cute.gemm(tiled, total, left[None, 0, slot, 0], right, total)
