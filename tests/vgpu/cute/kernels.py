"""Small kernels in the CuTe DSL; imported only where it is installed."""

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as blackwell
from cutlass.cute.nvgpu import (
    OperandMajorMode,
    cpasync,
    make_tiled_tma_atom_A,
    make_tiled_tma_atom_B,
    tcgen05,
)
from cutlass.memory import SmemAllocator

THREADS = 128


@cute.kernel
def add_kernel(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < count:
        out[i] = a[i] + b[i]


@cute.jit
def add(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, count: cutlass.Int32):
    blocks = (count + THREADS - 1) // THREADS
    add_kernel(a, b, out, count).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1))


class Scale:
    """A host function that is an object, with a constant that is compiled in."""

    @cute.jit
    def __call__(
        self, a: cute.Tensor, factor: cutlass.Constexpr, added: cutlass.Float32, out: cute.Tensor
    ):
        self.kernel(a, factor, added, out).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))

    @cute.kernel
    def kernel(
        self, a: cute.Tensor, factor: cutlass.Constexpr, added: cutlass.Float32, out: cute.Tensor
    ):
        thread, _, _ = cute.arch.thread_idx()
        out[thread] = a[thread] * factor + added


TILE = (128, 64, 64)
"""Rows, columns and depth of the product."""


@cute.struct
class Storage:
    full: cute.struct.MemRange[cutlass.Int64, 1]
    done: cute.struct.MemRange[cutlass.Int64, 1]
    columns: cutlass.Int32


@cute.kernel
def product_kernel(
    mma: cute.TiledMma,
    left_atom: cute.CopyAtom, left: cute.Tensor, left_layout: cute.ComposedLayout,
    right_atom: cute.CopyAtom, right: cute.Tensor, right_layout: cute.ComposedLayout,
    out: cute.Tensor, waits: cutlass.Constexpr, fences: cutlass.Constexpr,
):  # fmt: skip
    """A tile a block: factors by TMA, the product in tensor memory, a row for every thread."""
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    block, _, _ = cute.arch.block_idx()
    memory = SmemAllocator()
    storage = memory.allocate(Storage)
    shared_left = memory.allocate_tensor(
        cutlass.Float16, left_layout.outer, byte_alignment=1024, swizzle=left_layout.inner
    )
    shared_right = memory.allocate_tensor(
        cutlass.Float16, right_layout.outer, byte_alignment=1024, swizzle=right_layout.inner
    )
    full, done = storage.full.data_ptr(), storage.done.data_ptr()
    if warp == 0:
        cute.arch.alloc_tmem(TILE[1], storage.columns.ptr)
        cute.arch.relinquish_tmem_alloc_permit()
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init(done, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    part = mma.get_slice(0)
    whole_left = cute.local_tile(left, (TILE[0], TILE[2]), (block, None))
    whole_right = cute.local_tile(right, (TILE[1], TILE[2]), (0, None))
    to_left, from_left = cpasync.tma_partition(
        left_atom, 0, cute.make_layout(1), cute.group_modes(shared_left, 0, 3),
        cute.group_modes(part.partition_A(whole_left), 0, 3),
    )  # fmt: skip
    to_right, from_right = cpasync.tma_partition(
        right_atom, 0, cute.make_layout(1), cute.group_modes(shared_right, 0, 3),
        cute.group_modes(part.partition_B(whole_right), 0, 3),
    )  # fmt: skip
    if warp == 0:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, 2 * TILE[2] * (TILE[0] + TILE[1]))
        cute.copy(left_atom, from_left[None, 0], to_left[None, 0], tma_bar_ptr=full)
        cute.copy(right_atom, from_right[None, 0], to_right[None, 0], tma_bar_ptr=full)
    cute.arch.mbarrier_wait(full, 0)
    if thread < TILE[1]:
        first = ((thread, 0), 0, 0, 0)
        shared_right[first] = shared_right[first] + shared_right[first]
    if cutlass.const_expr(fences):
        cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    accumulator = mma.make_fragment_C(mma.partition_shape_C(TILE[:2]))
    base = cute.arch.retrieve_tmem_ptr(cutlass.Float32, 16, storage.columns.ptr)
    result = cute.make_tensor(base, accumulator.layout)
    factors = mma.make_fragment_A(shared_left), mma.make_fragment_B(shared_right)
    if warp == 0:
        for k in cutlass.range_constexpr(cute.size(factors[0], mode=[2])):
            mma.set(tcgen05.Field.ACCUMULATE, k != 0)
            cute.gemm(
                mma, result, factors[0][None, None, k, 0], factors[1][None, None, k, 0], result
            )
        with cute.arch.elect_one():
            tcgen05.commit(done)
    if cutlass.const_expr(waits):
        cute.arch.mbarrier_wait(done, 0)
    load = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x64), cutlass.Float32)
    copy = tcgen05.make_tmem_copy(load, result[(None, None), 0, 0]).get_slice(thread)
    lanes = copy.partition_D(cute.make_identity_tensor(TILE[:2]))
    row = cute.make_rmem_tensor(lanes.shape, cutlass.Float32)
    cute.copy(copy, copy.partition_S(result[(None, None), 0, 0]), row)
    cute.arch.fence_view_async_tmem_load()
    row = cute.make_tensor(row.iterator, cute.make_layout(TILE[1]))
    cute.autovec_copy(row, out[block * TILE[0] + thread, None])
    cute.arch.sync_threads()
    if warp == 0:
        cute.arch.dealloc_tmem(base, TILE[1])


def product(waits=True, fences=True):
    """The host function of a product `[rows, 64] @ [64, 64].T`, and what its kernel may forget.

    Threads double the first column of the right factor where it lies in shared memory.
    """

    @cute.jit
    def host(left: cute.Tensor, right: cute.Tensor, out: cute.Tensor):
        inner = OperandMajorMode.K
        mma = blackwell.make_trivial_tiled_mma(
            cutlass.Float16, cutlass.Float16, inner, inner, cutlass.Float32,
            tcgen05.CtaGroup.ONE, TILE[:2],
        )  # fmt: skip
        left_layout = blackwell.make_smem_layout_a(mma, TILE, cutlass.Float16, 1)
        right_layout = blackwell.make_smem_layout_b(mma, TILE, cutlass.Float16, 1)
        copy = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
        left_atom, left_tiles = make_tiled_tma_atom_A(
            copy, left, cute.select(left_layout, mode=[0, 1, 2]), TILE, mma
        )
        right_atom, right_tiles = make_tiled_tma_atom_B(
            copy, right, cute.select(right_layout, mode=[0, 1, 2]), TILE, mma
        )
        product_kernel(
            mma, left_atom, left_tiles, left_layout, right_atom, right_tiles, right_layout, out,
            waits, fences,
        ).launch(grid=(left.shape[0] // TILE[0], 1, 1), block=(THREADS, 1, 1))  # fmt: skip

    return host


@cute.kernel
def load_kernel(atom: cute.CopyAtom, tiles: cute.Tensor, layout: cute.Layout, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, 1)
    tile = memory.allocate_tensor(out.element_type, layout, byte_alignment=128)
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_arrive_and_expect_tx(full, cute.size_in_bytes(out.element_type, layout))
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    rank = cute.rank(layout)
    whole = cute.local_tile(tiles, layout.shape, (1,) * rank)
    to_tile, from_tile = cpasync.tma_partition(
        atom,
        0,
        cute.make_layout(1),
        cute.group_modes(tile, 0, rank),
        cute.group_modes(whole, 0, rank),
    )
    if thread < 32:
        cute.copy(atom, from_tile, to_tile, tma_bar_ptr=full)
    cute.arch.mbarrier_wait(full, 0)
    linear = cute.make_tensor(tile.iterator, cute.make_layout(cute.size(layout)))
    for i in range(thread, cute.size(layout), THREADS):
        out[i] = linear[i]


def load_tile(tile):
    """The host function of a kernel that copies a tile, the second along every dimension."""

    @cute.jit
    def host(tensor: cute.Tensor, out: cute.Tensor):
        layout = cute.make_ordered_layout(tile, order=tuple(reversed(range(len(tile)))))
        atom, tiles = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileG2SOp(), tensor, layout, tile
        )
        load_kernel(atom, tiles, layout, out).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))

    return host


@cute.kernel
def exchange_kernel(a: cute.Tensor, out: cute.Tensor, meets: cutlass.Constexpr):
    """Each block of a pair sends what it is given to the other one, and stores what it gets."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    memory = SmemAllocator()
    full = memory.allocate_array(cutlass.Int64, 1)
    held = memory.allocate_array(cutlass.Int32, THREADS)
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_arrive_and_expect_tx(full, 4 * THREADS)
    cute.arch.mbarrier_init_fence()
    if cutlass.const_expr(meets):
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()
    cute.arch.sync_threads()
    other = cute.arch.block_idx_in_cluster() ^ 1
    cute.arch.store_async_dsmem(held + thread, a[block * THREADS + thread], full, other)
    cute.arch.mbarrier_wait(full, 0)
    out[block * THREADS + thread] = cute.make_tensor(held, cute.make_layout(THREADS))[thread]


def exchange(meets=True):
    """The host function of blocks that exchange what they hold, and whether they meet before."""

    @cute.jit
    def host(a: cute.Tensor, out: cute.Tensor):
        exchange_kernel(a, out, meets).launch(
            grid=(a.shape[0] // THREADS, 1, 1), block=(THREADS, 1, 1), cluster=(2, 1, 1)
        )

    return host
