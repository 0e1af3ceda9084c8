"""K#1 on Blackwell: the reverse walk over the chunks, one persistent block for each batch and head.

    dU = dU0 + Kg dS          dS ← exp(a_C)∘dS + Qgᵀ dO − Wwᵀ dU

The state's gradient lies transposed in tensor memory, value channels along the lanes and key
channels along the columns, in float32 for the whole walk. So each of 128 threads owns the row of a
value channel: scaling is by column, and what a warp exchanges with global memory lies side by side.
Products read the state and dU as float16 from tensor memory as well; nothing that threads write
goes through shared memory.

    dUᵀ = dU0ᵀ + dSᵀ Kgᵀ      dSᵀ ← dSᵀ∘exp(a_C) + dOᵀ Qg − dUᵀ Ww

Four warps own rows, one issues products, one loads the next chunk's operands by TMA.
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as blackwell
from cutlass import Float16, Float32
from cutlass.cute.nvgpu import (
    OperandMajorMode,
    cpasync,
    make_tiled_tma_atom_A,
    make_tiled_tma_atom_B,
    tcgen05,
)
from cutlass.memory import SmemAllocator

from .tensor_memory import after_sync, before_sync, load_row, store_factor, store_row

KEYS, CHUNK, LANES = 128, 64, 128
"""Key channels, tokens of a chunk, and lanes: most value channels."""
STATE, UPDATE, FACTOR, COLUMNS = 0, 128, 192, 256
"""Where dSᵀ [128 columns], dUᵀ [64] and float16 factors [64] begin in tensor memory; the end."""
OWNERS, MULTIPLIER, LOADER, THREADS = 128, 4, 5, 192
"""Threads that own rows, the warps with other roles, and threads of a block."""
STAGES = 2
"""Chunks whose operands are in shared memory at once."""
STAGE_BYTES = 2 * (3 * CHUNK * KEYS + LANES * CHUNK) + 4 * KEYS
"""What TMA brings for a chunk; lanes beyond the value channels come as zeros."""
UPDATE_TILE, STATE_TILE = (LANES, CHUNK, KEYS), (LANES, KEYS, CHUNK)
"""Rows, columns and depth of the products that give dUᵀ and add to dSᵀ."""


@cute.struct
class Storage:
    """In shared memory, beside the operands: the barriers, and where tensor memory begins."""

    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    empty: cute.struct.MemRange[cutlass.Int64, STAGES]
    state_ready: cute.struct.MemRange[cutlass.Int64, 1]
    update_ready: cute.struct.MemRange[cutlass.Int64, 1]
    update_written: cute.struct.MemRange[cutlass.Int64, 1]
    state_done: cute.struct.MemRange[cutlass.Int64, 1]
    columns: cutlass.Int32


@dataclass(frozen=True)
class Barriers:
    """Who waits for what; each completes once a chunk, `full` and `empty` once a stage."""

    full: cute.Pointer
    """The loader's copies have come."""
    empty: cute.Pointer
    """Nobody reads the stage any more."""
    state_ready: cute.Pointer
    """Owners have stored dS as a factor, and decayed it."""
    update_ready: cute.Pointer
    """Kg dS is there."""
    update_written: cute.Pointer
    """Owners have stored dU as a factor."""
    state_done: cute.Pointer
    """dS holds all of the chunk's products."""


@cute.kernel
def reverse_state_scan_kernel(
    update_mma: cute.TiledMma, output_mma: cute.TiledMma, erase_mma: cute.TiledMma,
    key_atom: cute.CopyAtom, keys: cute.Tensor, key_layout: cute.ComposedLayout,
    query_atom: cute.CopyAtom, queries: cute.Tensor, row_layout: cute.ComposedLayout,
    erase_atom: cute.CopyAtom, erases: cute.Tensor,
    output_atom: cute.CopyAtom, outputs: cute.Tensor, output_layout: cute.ComposedLayout,
    decay_atom: cute.CopyAtom, decays: cute.Tensor, decay_layout: cute.Layout,
    grad_updates_local: cute.Tensor, grad_final: cute.Tensor,
    grad_states: cute.Tensor, grad_updates: cute.Tensor, grad_initial: cute.Tensor,
    chunks: cutlass.Int32, value_dim: cutlass.Constexpr,
):  # fmt: skip
    """Set up, then go the ways of the roles."""
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    memory = SmemAllocator()
    storage = memory.allocate(Storage)
    shared_keys, shared_queries, shared_erases, shared_outputs = (
        memory.allocate_tensor(Float16, layout.outer, byte_alignment=1024, swizzle=layout.inner)
        for layout in (key_layout, row_layout, row_layout, output_layout)
    )
    shared_decays = memory.allocate_tensor(Float32, decay_layout, byte_alignment=128)
    barriers = Barriers(
        storage.full.data_ptr(), storage.empty.data_ptr(), storage.state_ready.data_ptr(),
        storage.update_ready.data_ptr(), storage.update_written.data_ptr(),
        storage.state_done.data_ptr(),
    )  # fmt: skip
    if warp == 0:
        cute.arch.alloc_tmem(COLUMNS, storage.columns.ptr)
        cute.arch.relinquish_tmem_alloc_permit()
    if thread == 0:
        init_barriers(barriers)
    cute.arch.mbarrier_init_fence()
    before_sync()
    cute.arch.sync_threads()
    after_sync()
    base = cute.arch.retrieve_tmem_ptr(Float32, 16, storage.columns.ptr)
    if warp == LOADER:
        load_chunks(
            update_mma, output_mma, key_atom, keys, shared_keys, query_atom, queries,
            shared_queries, erase_atom, erases, shared_erases, output_atom, outputs,
            shared_outputs, decay_atom, decays, shared_decays, barriers, chunks,
        )  # fmt: skip
    elif warp == MULTIPLIER:
        multiply_chunks(
            update_mma, output_mma, erase_mma, shared_keys, shared_queries, shared_erases,
            shared_outputs, base, barriers, chunks,
        )  # fmt: skip
    else:
        own_rows(
            shared_decays, grad_updates_local, grad_final, grad_states, grad_updates, grad_initial,
            base, barriers, chunks, value_dim,
        )  # fmt: skip
    before_sync()
    cute.arch.sync_threads()
    after_sync()
    if warp == 0:
        cute.arch.dealloc_tmem(base, COLUMNS)


@cute.jit
def init_barriers(barriers: Barriers):
    """Say how many arrivals each waits for."""
    for stage in cutlass.range_constexpr(STAGES):
        cute.arch.mbarrier_init(barriers.full + stage, 1)
        cute.arch.mbarrier_init(barriers.empty + stage, 1)
    cute.arch.mbarrier_init(barriers.state_ready, OWNERS)
    cute.arch.mbarrier_init(barriers.update_ready, 1)
    cute.arch.mbarrier_init(barriers.update_written, OWNERS)
    cute.arch.mbarrier_init(barriers.state_done, 1)


@cute.jit
def load_chunks(
    update_mma: cute.TiledMma, output_mma: cute.TiledMma,
    key_atom: cute.CopyAtom, keys: cute.Tensor, shared_keys: cute.Tensor,
    query_atom: cute.CopyAtom, queries: cute.Tensor, shared_queries: cute.Tensor,
    erase_atom: cute.CopyAtom, erases: cute.Tensor, shared_erases: cute.Tensor,
    output_atom: cute.CopyAtom, outputs: cute.Tensor, shared_outputs: cute.Tensor,
    decay_atom: cute.CopyAtom, decays: cute.Tensor, shared_decays: cute.Tensor,
    barriers: Barriers, chunks: cutlass.Int32,
):  # fmt: skip
    """The loader: bring the operands of the chunks, from the last on, as stages become empty."""
    head, _, _ = cute.arch.block_idx()
    update_part, state_part = update_mma.get_slice(0), output_mma.get_slice(0)
    to_keys, from_keys = _tiles(
        key_atom, shared_keys, update_part.partition_B(_whole(keys, (CHUNK, KEYS)))
    )
    to_queries, from_queries = _tiles(
        query_atom, shared_queries, state_part.partition_B(_whole(queries, (KEYS, CHUNK)))
    )
    to_erases, from_erases = _tiles(
        erase_atom, shared_erases, state_part.partition_B(_whole(erases, (KEYS, CHUNK)))
    )
    to_outputs, from_outputs = _tiles(
        output_atom, shared_outputs, state_part.partition_A(_whole(outputs, (LANES, CHUNK)))
    )
    to_decays, from_decays = cpasync.tma_partition(
        decay_atom, 0, cute.make_layout(1), cute.group_modes(shared_decays, 0, 1),
        cute.group_modes(cute.local_tile(decays, (KEYS, 1), (0, None)), 0, 2),
    )  # fmt: skip
    for i in cutlass.range(chunks):
        chunk = head * chunks + chunks - 1 - i
        stage = i % STAGES
        full = barriers.full + stage
        cute.arch.mbarrier_wait(barriers.empty + stage, (i // STAGES + 1) % 2)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, STAGE_BYTES)
        for atom, source, target in (
            (key_atom, from_keys, to_keys),
            (query_atom, from_queries, to_queries),
            (erase_atom, from_erases, to_erases),
            (output_atom, from_outputs, to_outputs),
        ):
            cute.copy(atom, source[None, 0, 0, chunk], target[None, stage], tma_bar_ptr=full)
        cute.copy(decay_atom, from_decays[None, chunk], to_decays[None, stage], tma_bar_ptr=full)


@cute.jit
def multiply_chunks(
    update_mma: cute.TiledMma, output_mma: cute.TiledMma, erase_mma: cute.TiledMma,
    shared_keys: cute.Tensor, shared_queries: cute.Tensor, shared_erases: cute.Tensor,
    shared_outputs: cute.Tensor, base: cute.Pointer, barriers: Barriers, chunks: cutlass.Int32,
):  # fmt: skip
    """The multiplier: three products a chunk, of which one waits for nothing but operands."""
    update = _accumulator(update_mma, base + UPDATE, UPDATE_TILE)
    state = _accumulator(output_mma, base + STATE, STATE_TILE)
    state_factor = _factor(update_mma, base + FACTOR, UPDATE_TILE)
    update_factor = _factor(erase_mma, base + FACTOR, STATE_TILE)
    key_factor = update_mma.make_fragment_B(shared_keys)
    output_factor = output_mma.make_fragment_A(shared_outputs)
    query_factor = output_mma.make_fragment_B(shared_queries)
    erase_factor = erase_mma.make_fragment_B(shared_erases)
    output_mma.set(tcgen05.Field.ACCUMULATE, True)
    erase_mma.set(tcgen05.Field.ACCUMULATE, True)
    erase_mma.set(tcgen05.Field.NEGATE_A, True)
    for i in cutlass.range(chunks):
        stage = i % STAGES
        cute.arch.mbarrier_wait(barriers.full + stage, i // STAGES % 2)
        cute.arch.mbarrier_wait(barriers.state_ready, i % 2)
        after_sync()
        for k in cutlass.range_constexpr(cute.size(key_factor, mode=[2])):
            update_mma.set(tcgen05.Field.ACCUMULATE, k != 0)
            cute.gemm(
                update_mma, update, state_factor[None, None, k],
                key_factor[None, None, k, stage], update,
            )  # fmt: skip
        with cute.arch.elect_one():
            tcgen05.commit(barriers.update_ready)
        for k in cutlass.range_constexpr(cute.size(query_factor, mode=[2])):
            cute.gemm(
                output_mma, state, output_factor[None, None, k, stage],
                query_factor[None, None, k, stage], state,
            )  # fmt: skip
        cute.arch.mbarrier_wait(barriers.update_written, i % 2)
        after_sync()
        for k in cutlass.range_constexpr(cute.size(erase_factor, mode=[2])):
            cute.gemm(
                erase_mma, state, update_factor[None, None, k],
                erase_factor[None, None, k, stage], state,
            )  # fmt: skip
        with cute.arch.elect_one():
            tcgen05.commit(barriers.empty + stage)
            tcgen05.commit(barriers.state_done)


@cute.jit
def own_rows(
    shared_decays: cute.Tensor, grad_updates_local: cute.Tensor, grad_final: cute.Tensor,
    grad_states: cute.Tensor, grad_updates: cute.Tensor, grad_initial: cute.Tensor,
    base: cute.Pointer, barriers: Barriers, chunks: cutlass.Int32, value_dim: cutlass.Constexpr,
):  # fmt: skip
    """An owner: what happens to the row of a value channel between products.

    The factor's columns hold dS until Kg dS is there, then dU.
    """
    thread, _, _ = cute.arch.thread_idx()
    head, _, _ = cute.arch.block_idx()
    row = cute.make_rmem_tensor(CHUNK, Float32)
    local = cute.make_rmem_tensor(CHUNK, Float32)
    row.fill(0.0)
    local.fill(0.0)
    for half in cutlass.range_constexpr(KEYS // CHUNK):
        if thread < value_dim:
            cute.basic_copy(_part(grad_final, head, thread, half), row)
        store_row(row, base + STATE + CHUNK * half, thread)
    cute.arch.fence_view_async_tmem_store()
    for i in cutlass.range(chunks):
        chunk = head * chunks + chunks - 1 - i
        stage = i % STAGES
        if thread < value_dim:
            cute.basic_copy(grad_updates_local[chunk, None, thread], local)
        cute.arch.mbarrier_wait(barriers.full + stage, i // STAGES % 2)
        cute.arch.mbarrier_wait(barriers.state_done, (i + 1) % 2)
        after_sync()
        for half in cutlass.range_constexpr(KEYS // CHUNK):
            load_row(base + STATE + CHUNK * half, row, thread)
            cute.arch.fence_view_async_tmem_load()
            if thread < value_dim:
                cute.basic_copy(row, _part(grad_states, chunk, thread, half))
            store_factor(row, base + FACTOR + CHUNK // 2 * half, thread)
            decay = cute.local_tile(shared_decays[None, stage], (CHUNK,), (half,))
            row.store(row.load() * decay.load())
            store_row(row, base + STATE + CHUNK * half, thread)
        cute.arch.fence_view_async_tmem_store()
        before_sync()
        cute.arch.mbarrier_arrive(barriers.state_ready)
        cute.arch.mbarrier_wait(barriers.update_ready, i % 2)
        after_sync()
        load_row(base + UPDATE, row, thread)
        cute.arch.fence_view_async_tmem_load()
        row.store(row.load() + local.load())
        if thread < value_dim:
            cute.basic_copy(row, grad_updates[chunk, None, thread])
        store_factor(row, base + FACTOR, thread)
        cute.arch.fence_view_async_tmem_store()
        before_sync()
        cute.arch.mbarrier_arrive(barriers.update_written)
    cute.arch.mbarrier_wait(barriers.state_done, (chunks + 1) % 2)
    after_sync()
    for half in cutlass.range_constexpr(KEYS // CHUNK):
        load_row(base + STATE + CHUNK * half, row, thread)
        cute.arch.fence_view_async_tmem_load()
        if thread < value_dim:
            cute.basic_copy(row, _part(grad_initial, head, thread, half))


@cute.jit
def _whole(tensor: cute.Tensor, tile: cutlass.Constexpr):
    return cute.local_tile(tensor, tile, (None, None, None))


@cute.jit
def _tiles(atom: cute.CopyAtom, shared: cute.Tensor, tiles: cute.Tensor):
    """Where copies of tiles go to and come from."""
    return cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(shared, 0, 3), cute.group_modes(tiles, 0, 3)
    )


@cute.jit
def _accumulator(mma: cute.TiledMma, place: cute.Pointer, tile: cutlass.Constexpr):
    """Sums of a product in tensor memory."""
    return cute.make_tensor(place, mma.make_fragment_C(mma.partition_shape_C(tile[:2])).layout)


@cute.jit
def _factor(mma: cute.TiledMma, place: cute.Pointer, tile: cutlass.Constexpr):
    """A left factor in tensor memory."""
    shape = mma.partition_shape_A((tile[0], tile[2]))
    return cute.make_tensor(
        cute.recast_ptr(place, dtype=Float16), mma.make_fragment_A(shape).layout
    )


@cute.jit
def _part(
    states: cute.Tensor, index: cutlass.Int32, channel: cutlass.Int32, half: cutlass.Constexpr
):
    """Half of the key channels of a value channel, of a state [K, V]."""
    return cute.local_tile(states[index, None, channel], (CHUNK,), (half,))


def reverse_state_scan(value_dim: int):
    """The host function for so many value channels.

    Tensors are contiguous; L = B·H·N chunks, those of a head one after the other.
    """

    @cute.jit
    def host(
        query_decayed: cute.Tensor,
        key_decayed: cute.Tensor,
        erase_transformed: cute.Tensor,
        chunk_decay: cute.Tensor,
        grad_output: cute.Tensor,
        grad_updates_local: cute.Tensor,
        grad_final: cute.Tensor,
        grad_states: cute.Tensor,
        grad_updates: cute.Tensor,
        grad_initial: cute.Tensor,
        chunks: cutlass.Int32,
    ):
        inner, outer = OperandMajorMode.K, OperandMajorMode.MN
        one, shared = tcgen05.CtaGroup.ONE, tcgen05.OperandSource.SMEM
        tensor_memory = tcgen05.OperandSource.TMEM
        update_mma = blackwell.make_trivial_tiled_mma(
            Float16, Float16, inner, inner, Float32, one, UPDATE_TILE[:2], tensor_memory
        )
        output_mma = blackwell.make_trivial_tiled_mma(
            Float16, Float16, outer, outer, Float32, one, STATE_TILE[:2], shared
        )
        erase_mma = blackwell.make_trivial_tiled_mma(
            Float16, Float16, inner, outer, Float32, one, STATE_TILE[:2], tensor_memory
        )
        key_layout = blackwell.make_smem_layout_b(update_mma, UPDATE_TILE, Float16, STAGES)
        row_layout = blackwell.make_smem_layout_b(output_mma, STATE_TILE, Float16, STAGES)
        output_layout = blackwell.make_smem_layout_a(output_mma, STATE_TILE, Float16, STAGES)
        decay_layout = cute.make_layout((KEYS, STAGES))
        copy = cpasync.CopyBulkTensorTileG2SOp(one)
        key_atom, keys = make_tiled_tma_atom_B(
            copy, _tokens_first(key_decayed), cute.slice_(key_layout, (None, None, None, 0)),
            UPDATE_TILE, update_mma,
        )  # fmt: skip
        one_row = cute.slice_(row_layout, (None, None, None, 0))
        query_atom, queries = make_tiled_tma_atom_B(
            copy, _channels_first(query_decayed), one_row, STATE_TILE, output_mma
        )
        erase_atom, erases = make_tiled_tma_atom_B(
            copy, _channels_first(erase_transformed), one_row, STATE_TILE, erase_mma
        )
        output_atom, outputs = make_tiled_tma_atom_A(
            copy, _channels_first(grad_output), cute.slice_(output_layout, (None, None, None, 0)),
            STATE_TILE, output_mma,
        )  # fmt: skip
        decay_atom, decays = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileG2SOp(),
            cute.make_tensor(chunk_decay.iterator, cute.select(chunk_decay.layout, mode=[1, 0])),
            cute.make_layout((KEYS, 1)),
            (KEYS, 1),
        )
        reverse_state_scan_kernel(
            update_mma, output_mma, erase_mma,
            key_atom, keys, key_layout, query_atom, queries, row_layout, erase_atom, erases,
            output_atom, outputs, output_layout, decay_atom, decays, decay_layout,
            grad_updates_local, grad_final, grad_states, grad_updates, grad_initial, chunks,
            value_dim,
        ).launch(grid=(grad_final.shape[0], 1, 1), block=(THREADS, 1, 1))  # fmt: skip

    return host


@cute.jit
def _tokens_first(tensor: cute.Tensor):
    """[L, tokens, channels] as (tokens, channels, L)."""
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=[1, 2, 0]))


@cute.jit
def _channels_first(tensor: cute.Tensor):
    """[L, tokens, channels] as (channels, tokens, L)."""
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=[2, 1, 0]))
