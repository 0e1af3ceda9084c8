"""Products of the chunks of a stage, two chunks a block, with tokens as columns.

A product of a chunk is [rows, depth] times [depth, TOKENS]. Its rows are channels, its columns
tokens: a thread gets one channel of a result and walks over tokens, so that a warp writes side by
side. Factors come to shared memory by TMA and as they lie.

Nothing is padded. Products of 128 rows, one for each chunk of a block, lie in columns beside each
other. A product of 64 rows fills 16 of every 32 lanes of tensor memory: the second chunk's goes
into the lanes that the first has left, and every thread has a row of either. One product of 128
rows for both chunks, [X; X'] [Y; Y']ᵀ, would be to one half of one chunk with the other, and take
twice the columns; [X 0; 0 X'] [Y; Y'] would need zeros in shared memory.

Nothing postpones annotations here: the DSL wants them evaluated.
"""

from typing import NamedTuple

import cutlass
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.memory import SmemAllocator, TmemAllocator
from cutlass.utils import blackwell_helpers

from .tensor_memory import LANE_STRIDE, LANES, after_sync, before_sync, load_row, rounded
from .token_rows import TOKENS, Place, found_at, place_of, turned

OPERAND, SUM = cutlass.Float16, cutlass.Float32
KEYS = 128
CHUNKS = 2
"""Of a block."""
THREADS = 128
_HALF_WARP = 16
FACTOR_ALIGN_BYTES = 1024


class Product(NamedTuple):
    """A product of every chunk, [rows, depth] times [depth, TOKENS]."""

    rows: int
    """64 or 128."""
    depth: int
    left_across: bool
    """Whether the left factor lies as [depth, rows], transposed."""
    right_across: bool
    """Whether the right factor lies as [depth, TOKENS], else as [TOKENS, depth]."""
    column: int
    """Where its results begin in tensor memory."""
    chunks: int = CHUNKS
    """How many a block makes."""

    @property
    def interleaved(self) -> bool:
        """Whether two chunks share the columns."""
        return self.rows < LANES

    @property
    def end(self) -> int:
        """The column after its results."""
        return self.column + (TOKENS if self.interleaved else self.chunks * TOKENS)

    def tiled(self) -> cute.TiledMma:
        across, along = OperandMajorMode.MN, OperandMajorMode.K
        left, right = (
            across if lies_across else along
            for lies_across in (self.left_across, self.right_across)
        )
        shape = self.rows, TOKENS
        return blackwell_helpers.make_trivial_tiled_mma(
            OPERAND, OPERAND, left, right, SUM, tcgen05.CtaGroup.ONE, shape
        )


class Factor(NamedTuple):
    """One side of a product."""

    product: Product
    left: bool

    @property
    def tile(self) -> tuple[int, int, int]:
        return self.product.rows, TOKENS, self.product.depth

    def layout(self) -> cute.ComposedLayout:
        """In shared memory, […, chunk]."""
        make = blackwell_helpers.make_smem_layout_b
        if self.left:
            make = blackwell_helpers.make_smem_layout_a
        return make(self.product.tiled(), self.tile, OPERAND, self.product.chunks)

    def place(self, memory: SmemAllocator) -> cute.Tensor:
        """Allocate it."""
        layout = self.layout()
        return memory.allocate_tensor(OPERAND, layout.outer, FACTOR_ALIGN_BYTES, layout.inner)

    def at(self, pointer: cute.Pointer) -> cute.Tensor:
        """Where it lies from a pointer on, which has to be a multiple of 1024 bytes."""
        layout = self.layout()
        return cute.make_tensor(cute.recast_ptr(pointer, layout.inner, OPERAND), layout.outer)

    def view(self, place: cute.Tensor) -> cute.Tensor:
        """As which it finds what was put there as a factor of another product."""
        return cute.make_tensor(place.iterator, self.layout().outer)

    @property
    def across(self) -> bool:
        """Whether it lies with its depth first."""
        return self.product.left_across if self.left else self.product.right_across

    def copy(self, source: cute.Tensor) -> tuple[cute.CopyAtom, cute.Tensor]:
        """How TMA copies it, and its source (see `token_rows.py`) in TMA's coordinates."""
        ordered = turned(source) if self.across else source
        make = cute.nvgpu.make_tiled_tma_atom_A if self.left else cute.nvgpu.make_tiled_tma_atom_B
        load = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
        layout = cute.select(self.layout(), mode=[0, 1, 2])
        return make(load, ordered, layout, self.tile, self.product.tiled())

    def load(self, atom, source, target, places, barrier):
        """Have TMA bring that of each chunk."""
        rows, columns, depth = self.tile
        part = self.product.tiled().get_slice(0)
        for chunk, place in enumerate(places):
            moved, rest = found_at(place, source, self.across)
            anywhere = 0, 0, *(None for _ in rest)
            tile = cute.local_tile(moved, (rows if self.left else columns, depth), anywhere)
            tile = part.partition_A(tile) if self.left else part.partition_B(tile)
            into, of = cpasync.tma_partition(
                *(atom, 0, cute.make_layout(1)),
                *(cute.group_modes(tensor, 0, 3) for tensor in (target, tile)),
            )
            cute.copy(atom, of[(None, *rest)], into[None, chunk], tma_bar_ptr=barrier)


def copies(factors, sources):
    """Atoms and TMA's coordinates of the factors that TMA brings, from one source each."""
    made = [factor.copy(source) for factor, source in zip(factors, sources, strict=True)]
    return zip(*made, strict=True)


class Block(NamedTuple):
    """What a block has from its beginning on."""

    loaded: cute.Pointer
    """Barriers, told by TMA."""
    multiplied: cute.Pointer
    """Barriers, told by the tensor cores."""
    tensor_memory: TmemAllocator
    base: cute.Pointer
    """The first column."""


def everyone() -> pipeline.NamedBarrier:
    """A barrier of all threads."""
    return pipeline.NamedBarrier(barrier_id=1, num_threads=THREADS)


@cute.jit
def begin(memory: SmemAllocator, barriers: cutlass.Constexpr, columns: cutlass.Constexpr) -> Block:
    """Make so many barriers of either kind, and take all tensor memory that will be needed."""
    loaded, multiplied = (
        memory.allocate_array(cutlass.Int64, barriers, byte_alignment=8) for _ in range(2)
    )
    address = memory.allocate_array(cutlass.Int32, 1)
    tensor_memory = TmemAllocator(address, barrier_for_retrieve=everyone())
    tensor_memory.allocate(columns)
    tensor_memory.relinquish_alloc_permit()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp == 0:
        with cute.arch.elect_one():
            for index in cutlass.range_constexpr(barriers):
                cute.arch.mbarrier_init(loaded + index, 1)
                cute.arch.mbarrier_init(multiplied + index, 1)
        cute.arch.mbarrier_init_fence()
    tensor_memory.wait_for_alloc()
    return Block(loaded, multiplied, tensor_memory, tensor_memory.retrieve_ptr(SUM))


def end(block):
    """Give tensor memory back when nobody uses it any more."""
    before_sync()
    everyone().arrive_and_wait()
    block.tensor_memory.free(block.base)


@cute.jit
def places_of(
    block: cutlass.Int32, heads: cutlass.Int32, starts: cute.Tensor, stops: cute.Tensor
) -> tuple[Place, ...]:
    """Where the chunks of a block lie; heads of a chunk follow each other."""
    first = block * CHUNKS
    return tuple(
        place_of((first + k) // heads, (first + k) % heads, heads, starts, stops)
        for k in range(CHUNKS)
    )


def fetch(factors, atoms, sources, targets, places, barrier):
    """Have TMA bring factors of each chunk, and a barrier wait for them."""
    size_bytes = sum(cute.size_in_bytes(OPERAND, target.layout) for target in targets)
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, size_bytes)
    for factor, *ends in zip(factors, atoms, sources, targets, strict=True):
        factor.load(*ends, places, barrier)


def multiply(product, left, right, base):
    """Hand the products of all chunks over to the tensor cores."""
    tiled = product.tiled()
    lefts, rights = tiled.make_fragment_A(left), tiled.make_fragment_B(right)
    layout = tiled.make_fragment_C(tiled.partition_shape_C((product.rows, TOKENS))).layout
    for chunk in range(product.chunks):
        offset = chunk * (_HALF_WARP * LANE_STRIDE if product.interleaved else TOKENS)
        total = cute.make_tensor(base + product.column + offset, layout)
        for step in range(cute.size(lefts, mode=[2])):
            tiled.set(tcgen05.Field.ACCUMULATE, step != 0)
            at = None, None, step, chunk
            cute.gemm(tiled, total, lefts[at], rights[at], total)


def commit(barrier):
    """Have the tensor cores tell a barrier when what they were handed over is done."""
    with cute.arch.elect_one():
        tcgen05.commit(barrier)


def lanes(product, thread, places):
    """Which rows of a product are this thread's: in which of the chunks, its place, the channel."""
    if not product.interleaved:
        return [(chunk, place, thread) for chunk, place in enumerate(places)]
    chunk = thread // _HALF_WARP % CHUNKS
    return [(chunk, _either(chunk, places), thread // 32 * _HALF_WARP + thread % _HALF_WARP)]


def rows(product, base, thread, places):
    """This thread's rows of a product: as of `lanes`, with the sums at the chunk's tokens.

    Each is loaded when it is asked for.
    """
    after_sync()
    for index, lane in enumerate(lanes(product, thread, places)):
        row = cute.make_rmem_tensor(TOKENS, SUM)
        load_row(base + product.column + index * TOKENS, row, thread)
        cute.arch.fence_view_async_tmem_load()
        yield *lane, row


def _either(chunk, places):
    """The place of a chunk that is known only when the kernel runs."""
    first, second = places
    return Place(
        *(cutlass.select_(chunk == 0, *fields) for fields in zip(first, second, strict=True))
    )


def keep_from(row, first):
    """Zero at tokens before the first that is kept."""
    for token in range(TOKENS):
        row[token] = cutlass.select_(token >= first, row[token], SUM(0.0))


@cute.jit
def store(row, target, place, channel):
    """Write a row to [L, TOKENS, channels], if there is such a chunk."""
    if place.count > 0:
        own = target[cutlass.Int64(place.index), None, channel]
        cute.autovec_copy(rounded(row, target.element_type), own)


@cute.jit
def load(row, source, place, channel):
    """Read a row of [L, TOKENS, channels], if it is there."""
    if place.count > 0 and channel < source.shape[2]:
        found = cute.make_rmem_tensor(TOKENS, source.element_type)
        cute.autovec_copy(source[cutlass.Int64(place.index), None, channel], found)
        row.store(found.load().to(row.element_type))
