"""K#2 for Blackwell's tensor cores: the gradients through U = T (w∘v − Kb h), see `stages.py`.

All three products are made transposed, so that their columns are the tokens of a chunk, and a
thread gets one channel of a result and walks over tokens:

    dRᵀ  =  dUᵀ T              [V, C], sums over C tokens
    dKbᵀ = −h dRᵀ              [K, C], sums over V
    dMᵀ  = −(U dRᵀ)            [C, C], sums over V; strictly upper

The second and the third have one right factor, dRᵀ rounded to float16, which threads put into
shared memory as they get it; TMA brings the other factors there as they lie.

A block takes two chunks, and nothing is padded. With K = 128, h has the 128 rows of a full product,
as dUᵀ has for V = 128: the products of two chunks lie in columns beside each other. U, and dUᵀ for
V = 64, have 64 rows, which fill 16 of every 32 lanes of tensor memory: the second chunk's product
goes into the lanes that the first has left, and every thread has a row of either. One product of
128 rows for both chunks, [dR; dR'] [U; U']ᵀ, would be to one half of one chunk with the other, and
take twice the columns; [Tᵀ 0; 0 T'ᵀ] [dU; dU'] would need zeros as well.

Tensor memory, in columns: dKbᵀ of both chunks from 0 to 127, dMᵀ from 128 to 191; dRᵀ, which has
been read by then, from 0. One allocation of 256 lets two blocks share a multiprocessor.

Nothing postpones annotations here: the DSL wants them evaluated.
"""

from typing import NamedTuple

import cutlass
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.memory import SmemAllocator, TmemAllocator
from cutlass.utils import blackwell_helpers

from .tensor_memory import LANE_STRIDE, LANES, after_sync, before_sync, load_row

OPERAND, SUM = cutlass.Float16, cutlass.Float32
KEYS, TOKENS = 128, 64
CHUNKS = 2
"""Of a block."""
THREADS = 128
COLUMNS = 256
"""Of tensor memory, for a block."""
_HALF_WARP = 16
_FACTOR_ALIGN_BYTES = 1024


class _Product(NamedTuple):
    """A product of every chunk, [rows, depth] times [depth, TOKENS]."""

    rows: int
    depth: int
    across: bool
    """Whether the left factor lies transposed, [depth, rows], as the right one does, [depth,
    TOKENS]; else as [rows, depth]."""
    column: int
    """Where its results begin in tensor memory."""

    @property
    def interleaved(self) -> bool:
        """Whether two chunks share the columns."""
        return self.rows < LANES

    def tiled(self) -> cute.TiledMma:
        left = OperandMajorMode.MN if self.across else OperandMajorMode.K
        return blackwell_helpers.make_trivial_tiled_mma(
            *(OPERAND, OPERAND, left, OperandMajorMode.MN, SUM),
            *(tcgen05.CtaGroup.ONE, (self.rows, TOKENS)),
        )


class _Factor(NamedTuple):
    """One side of a product."""

    product: _Product
    left: bool

    @property
    def tile(self) -> tuple[int, int, int]:
        return self.product.rows, TOKENS, self.product.depth

    def layout(self) -> cute.ComposedLayout:
        """In shared memory, […, chunk]."""
        make = blackwell_helpers.make_smem_layout_b
        if self.left:
            make = blackwell_helpers.make_smem_layout_a
        return make(self.product.tiled(), self.tile, OPERAND, CHUNKS)

    def place(self, memory: SmemAllocator) -> cute.Tensor:
        """Allocate it."""
        layout = self.layout()
        return memory.allocate_tensor(OPERAND, layout.outer, _FACTOR_ALIGN_BYTES, layout.inner)

    def copy(self, tensor: cute.Tensor) -> tuple[cute.CopyAtom, cute.Tensor]:
        """How TMA copies it, and the tensor [L, …] in TMA's coordinates."""
        order = [1, 2, 0] if self.left and not self.product.across else [2, 1, 0]
        ordered = cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=order))
        make = cute.nvgpu.make_tiled_tma_atom_A if self.left else cute.nvgpu.make_tiled_tma_atom_B
        load = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
        layout = cute.select(self.layout(), mode=[0, 1, 2])
        return make(load, ordered, layout, self.tile, self.product.tiled())

    def load(self, atom, source, target, start, barrier):
        """Have TMA bring it."""
        rows, columns, depth = self.tile
        part = self.product.tiled().get_slice(0)
        tile = cute.local_tile(source, (rows if self.left else columns, depth), (None, None, None))
        tile = part.partition_A(tile) if self.left else part.partition_B(tile)
        into, of = cpasync.tma_partition(
            *(atom, 0, cute.make_layout(1)),
            *(cute.group_modes(tensor, 0, 3) for tensor in (target, tile)),
        )
        for chunk in range(CHUNKS):
            cute.copy(atom, of[None, 0, 0, start + chunk], into[None, chunk], tma_bar_ptr=barrier)


def _products(values: int) -> tuple[_Product, _Product, _Product]:
    """What makes dRᵀ, dKbᵀ and dMᵀ."""
    return (
        _Product(values, TOKENS, True, 0),
        _Product(KEYS, values, False, 0),
        _Product(TOKENS, values, False, CHUNKS * TOKENS),
    )


def _factors(values: int) -> tuple[_Factor, _Factor, _Factor, _Factor]:
    """What TMA fetches: of dU and T, then of h and U."""
    first, second, third = _products(values)
    return _Factor(first, True), _Factor(first, False), _Factor(second, True), _Factor(third, True)


@cute.jit
def transform_adjoint(
    inverse: cute.Tensor,
    updates: cute.Tensor,
    states: cute.Tensor,
    grad_updates: cute.Tensor,
    written: cute.Tensor,
    erased: cute.Tensor,
    erasure: cute.Tensor,
):
    """Launch the kernel for all chunks of all batch entries and heads, L of them.

    C = 64, K = 128 and V = 64 or 128 are known when it is compiled, L when it is called.

    Args:
        inverse: T [L, C, C], float16.
        updates: U [L, C, V], float16.
        states: h [L, K, V], float16.
        grad_updates: dU [L, C, V], float16.
        written: Takes d(w∘v) = dR [L, C, V].
        erased: Takes dKb [L, C, K].
        erasure: Takes dM [L, C, C], zeros included.
    """
    values = grad_updates.shape[2]
    tensors = grad_updates, inverse, states, updates
    copies = [factor.copy(tensor) for factor, tensor in zip(_factors(values), tensors, strict=True)]
    _kernel(*zip(*copies, strict=True), written, erased, erasure, values).launch(
        grid=(cute.ceil_div(written.shape[0], CHUNKS), 1, 1), block=(THREADS, 1, 1)
    )


@cute.kernel
def _kernel(
    atoms: tuple[cute.CopyAtom, ...],
    sources: tuple[cute.Tensor, ...],
    written: cute.Tensor,
    erased: cute.Tensor,
    erasure: cute.Tensor,
    values: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    block, _, _ = cute.arch.block_idx()
    start = block * CHUNKS
    first, second, third = _products(values)
    factors = _factors(values)

    memory = SmemAllocator()
    grad_updates, inverse, states, updates = (factor.place(memory) for factor in factors)
    residual = _Factor(second, False).place(memory)
    loaded, multiplied = (
        memory.allocate_array(cutlass.Int64, 2, byte_alignment=8) for _ in range(2)
    )
    everyone = pipeline.NamedBarrier(barrier_id=1, num_threads=THREADS)
    tensor_memory = TmemAllocator(barrier_for_retrieve=everyone)
    tensor_memory.allocate(COLUMNS)
    tensor_memory.relinquish_alloc_permit()
    if warp == 0:
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(2):
                cute.arch.mbarrier_init(loaded + stage, 1)
                cute.arch.mbarrier_init(multiplied + stage, 1)
        cute.arch.mbarrier_init_fence()
    tensor_memory.wait_for_alloc()
    base = tensor_memory.retrieve_ptr(SUM)

    if warp == 0:
        _fetch(factors[:2], atoms[:2], sources[:2], (grad_updates, inverse), start, loaded)
        _fetch(factors[2:], atoms[2:], sources[2:], (states, updates), start, loaded + 1)
        cute.arch.mbarrier_wait(loaded, 0)
        _multiply(first, grad_updates, inverse, base)
        with cute.arch.elect_one():
            tcgen05.commit(multiplied)

    cute.arch.mbarrier_wait(multiplied, 0)
    rows = _rows(first, base, thread)
    for chunk, channel, row in rows:
        _keep(row, residual, chunk, channel)
    cute.arch.fence_proxy("async.shared", space="cta")
    before_sync()
    everyone.arrive_and_wait()
    if warp == 0:
        after_sync()
        cute.arch.mbarrier_wait(loaded + 1, 0)
        _multiply(second, states, residual, base)
        _multiply(third, updates, residual, base)
        with cute.arch.elect_one():
            tcgen05.commit(multiplied + 1)
    for chunk, channel, row in rows:
        _store(row, written, start + chunk, channel)

    cute.arch.mbarrier_wait(multiplied + 1, 0)
    for chunk, channel, row in _rows(second, base, thread):
        row.store(-row.load())
        _store(row, erased, start + chunk, channel)
    for chunk, channel, row in _rows(third, base, thread):
        row.store(-row.load())
        _above_diagonal(row, channel)
        _store(row, erasure, start + chunk, channel)
    before_sync()
    everyone.arrive_and_wait()
    tensor_memory.free(base)


def _fetch(factors, atoms, sources, targets, start, barrier):
    """Have TMA bring factors of each chunk, and a barrier wait for them."""
    size_bytes = sum(cute.size_in_bytes(OPERAND, target.layout) for target in targets)
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, size_bytes)
    for factor, *ends in zip(factors, atoms, sources, targets, strict=True):
        factor.load(*ends, start, barrier)


def _multiply(product, left, right, base):
    """Hand the products of all chunks over to the tensor cores."""
    tiled = product.tiled()
    lefts, rights = tiled.make_fragment_A(left), tiled.make_fragment_B(right)
    layout = tiled.make_fragment_C(tiled.partition_shape_C((product.rows, TOKENS))).layout
    for chunk in range(CHUNKS):
        offset = chunk * (_HALF_WARP * LANE_STRIDE if product.interleaved else TOKENS)
        total = cute.make_tensor(base + product.column + offset, layout)
        for step in range(cute.size(lefts, mode=[2])):
            tiled.set(tcgen05.Field.ACCUMULATE, step != 0)
            at = None, None, step, chunk
            cute.gemm(tiled, total, lefts[at], rights[at], total)


def _rows(product, base, thread):
    """This thread's rows of a product: of which chunk and channel each is, and its tokens."""
    after_sync()
    if product.interleaved:
        channel = thread // 32 * _HALF_WARP + thread % _HALF_WARP
        places = [(thread // _HALF_WARP % 2, channel)]
    else:
        places = [(chunk, thread) for chunk in range(CHUNKS)]
    rows = []
    for index, place in enumerate(places):
        rows.append((*place, cute.make_rmem_tensor(TOKENS, SUM)))
        load_row(base + product.column + index * TOKENS, rows[-1][-1], thread)
    cute.arch.fence_view_async_tmem_load()
    return rows


def _above_diagonal(row, channel):
    """Zero at tokens up to the channel's own."""
    for token in range(TOKENS):
        row[token] = cutlass.select_(token > channel, row[token], SUM(0.0))


def _keep(row, target, chunk, channel):
    """Round a row and put it where it is part of the right factor."""
    cute.autovec_copy(_as(row, OPERAND), target[(None, channel % 16), 0, channel // 16, chunk])


@cute.jit
def _store(row, target, chunk, channel):
    """Write a row, unless its chunk lies behind the last one."""
    if chunk < target.shape[0]:
        own = target[cutlass.Int64(chunk), None, channel]
        cute.autovec_copy(_as(row, target.element_type), own)


def _as(row, element_type):
    converted = cute.make_rmem_tensor((TOKENS,), element_type)
    converted.store(row.load().to(element_type))
    return converted
