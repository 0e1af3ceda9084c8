"""K#1 on Blackwell: the reverse walk over the chunks, one persistent block for each batch and head.

    dU = Aᵀ dO + Kg dS          dS ← exp(a_C)∘dS + Qgᵀ dO − Wwᵀ dU

The state's gradient lies transposed in tensor memory, value channels along the lanes and key
channels along the columns, in float32 for the whole walk. So each of 128 threads owns the row of a
value channel: scaling is by column, and what a warp exchanges with global memory lies side by side.
Products read the state and dU as float16 from tensor memory as well; nothing that threads write
goes through shared memory.

    dUᵀ = dOᵀ A + dSᵀ Kgᵀ      dSᵀ ← dSᵀ∘exp(a_C) + dOᵀ Qg − dUᵀ Ww

Four warps own rows, one issues products, one loads the next chunk's operands by TMA, tokens from
where the forward left them (`token_rows.py`). The first product waits for no state.
"""

from dataclasses import dataclass
from typing import NamedTuple

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

from .tensor_memory import after_sync, before_sync, load_row, rounded, store_factor, store_row
from .token_rows import found_at, matrices, place_of, rows_before, turned

KEYS, CHUNK, LANES = 128, 64, 128
"""Key channels, tokens of a chunk, and lanes: most value channels."""
STATE, UPDATE, FACTOR, COLUMNS = 0, 128, 192, 256
"""Where dSᵀ [128 columns], dUᵀ [64] and float16 factors [64] begin in tensor memory; the end."""
OWNERS, MULTIPLIER, LOADER, THREADS = 128, 4, 5, 192
"""Threads that own rows, the warps with other roles, and threads of a block."""
STAGES = 2
"""Chunks whose operands are in shared memory at once."""
LOCAL_TILE, UPDATE_TILE, STATE_TILE = (
    (LANES, CHUNK, CHUNK),
    (LANES, CHUNK, KEYS),
    (LANES, KEYS, CHUNK),
)
"""Rows, columns and depth of the products that give dUᵀ, from dO and from dS, and add to dSᵀ."""


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
    """dU is there."""
    update_written: cute.Pointer
    """Owners have taken dU, and stored it as a factor."""
    state_done: cute.Pointer
    """dS holds all of the chunk's products."""


class Products(NamedTuple):
    """The products of a chunk, in the order of their issue."""

    local: cute.TiledMma
    """dOᵀ A"""
    update: cute.TiledMma
    """dSᵀ Kgᵀ"""
    output: cute.TiledMma
    """dOᵀ Qg"""
    erase: cute.TiledMma
    """dUᵀ Ww"""


def products() -> Products:
    """Make them, for the host or the kernel."""
    inner, outer = OperandMajorMode.K, OperandMajorMode.MN
    shared, lanes = tcgen05.OperandSource.SMEM, tcgen05.OperandSource.TMEM

    def make(left, right, tile, source):
        return blackwell.make_trivial_tiled_mma(
            Float16, Float16, left, right, Float32, tcgen05.CtaGroup.ONE, tile[:2], source
        )

    return Products(
        make(outer, outer, LOCAL_TILE, shared),
        make(inner, inner, UPDATE_TILE, lanes),
        make(outer, outer, STATE_TILE, shared),
        make(inner, outer, STATE_TILE, lanes),
    )


class Operand(NamedTuple):
    """What TMA brings of every chunk, as one side of a product."""

    mma: cute.TiledMma
    tile: tuple[int, int, int]
    left: bool = False
    across: bool = True
    """Whether it lies as [depth, rows], transposed."""

    def layout(self) -> cute.ComposedLayout:
        """In shared memory, […, stage]."""
        make = blackwell.make_smem_layout_a if self.left else blackwell.make_smem_layout_b
        return make(self.mma, self.tile, Float16, STAGES)

    def copy(self, tensor: cute.Tensor) -> tuple[cute.CopyAtom, cute.Tensor]:
        """How TMA copies it, and the tensor in TMA's coordinates."""
        make = make_tiled_tma_atom_A if self.left else make_tiled_tma_atom_B
        load = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
        layout = cute.select(self.layout(), mode=[0, 1, 2])
        ordered = turned(tensor) if self.across else tensor
        return make(load, ordered, layout, self.tile, self.mma)

    def load(self, atom, source, target, place, stage, barrier):
        """Have TMA bring that of a chunk."""
        rows, columns, depth = self.tile
        part = self.mma.get_slice(0)
        source, rest = found_at(place, source, self.across)
        anywhere = (0, 0, *(None,) * len(rest))
        tile = cute.local_tile(source, (rows if self.left else columns, depth), anywhere)
        tile = part.partition_A(tile) if self.left else part.partition_B(tile)
        into, of = cpasync.tma_partition(
            *(atom, 0, cute.make_layout(1)),
            *(cute.group_modes(tensor, 0, 3) for tensor in (target, tile)),
        )
        cute.copy(atom, of[(None, *rest)], into[None, stage], tma_bar_ptr=barrier)


def operands(erases: bool) -> tuple[Operand, ...]:
    """Kg, Qg, dO, A and Ww, the last if something is erased."""
    made = products()
    found = (
        Operand(made.update, UPDATE_TILE, across=False),
        Operand(made.output, STATE_TILE),
        Operand(made.output, STATE_TILE, left=True),
        Operand(made.local, LOCAL_TILE),
        Operand(made.erase, STATE_TILE),
    )
    return found if erases else found[:-1]


@cute.kernel
def reverse_state_scan_kernel(
    atoms: tuple[cute.CopyAtom, ...], sources: tuple[cute.Tensor, ...],
    decay_atom: cute.CopyAtom, decays: cute.Tensor,
    grad_final: cute.Tensor, given: cutlass.Int32, grad_states: cute.Tensor,
    grad_updates: cute.Tensor, grad_initial: cute.Tensor,
    starts: cute.Tensor, stops: cute.Tensor, first_chunks: cute.Tensor, heads: cutlass.Int32,
    erases: cutlass.Constexpr,
):  # fmt: skip
    """Set up, then go the ways of the roles."""
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    sequence, head, _ = cute.arch.block_idx()
    first = first_chunks[sequence]
    chunks = first_chunks[sequence + 1] - first
    memory = SmemAllocator()
    storage = memory.allocate(Storage)
    layouts = [operand.layout() for operand in operands(erases)]
    targets = [
        memory.allocate_tensor(Float16, layout.outer, byte_alignment=1024, swizzle=layout.inner)
        for layout in layouts
    ]
    shared_decays = memory.allocate_tensor(
        Float32, cute.make_layout((KEYS, STAGES)), byte_alignment=128
    )
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
            atoms, sources, tuple(targets), decay_atom, decays, shared_decays, barriers,
            first, chunks, head, heads, starts, stops, erases,
        )  # fmt: skip
    elif warp == MULTIPLIER:
        multiply_chunks(tuple(targets), base, barriers, chunks, erases)
    else:
        own_rows(
            shared_decays, grad_final, given, grad_states, grad_updates, grad_initial,
            base, barriers, first, chunks, head, heads, sequence, erases,
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
    atoms: tuple[cute.CopyAtom, ...], sources: tuple[cute.Tensor, ...],
    targets: tuple[cute.Tensor, ...],
    decay_atom: cute.CopyAtom, decays: cute.Tensor, shared_decays: cute.Tensor,
    barriers: Barriers, first: cutlass.Int32, chunks: cutlass.Int32, head: cutlass.Int32,
    heads: cutlass.Int32, starts: cute.Tensor, stops: cute.Tensor, erases: cutlass.Constexpr,
):  # fmt: skip
    """The loader: bring the operands of the chunks, from the last on, as stages become empty."""
    to_decays, from_decays = cpasync.tma_partition(
        decay_atom, 0, cute.make_layout(1), cute.group_modes(shared_decays, 0, 1),
        cute.group_modes(cute.local_tile(decays, (KEYS, 1), (0, None)), 0, 2),
    )  # fmt: skip
    bytes_of_all = sum(cute.size_in_bytes(Float16, target.layout) for target in targets)
    stage_bytes = bytes_of_all // STAGES + 4 * KEYS
    for i in cutlass.range(chunks):
        place = place_of(first + chunks - 1 - i, head, heads, starts, stops)
        stage = i % STAGES
        full = barriers.full + stage
        cute.arch.mbarrier_wait(barriers.empty + stage, (i // STAGES + 1) % 2)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, stage_bytes)
        for operand, atom, source, target in zip(
            operands(erases), atoms, sources, targets, strict=True
        ):
            operand.load(atom, source, target, place, stage, full)
        cute.copy(
            decay_atom, from_decays[None, place.index], to_decays[None, stage], tma_bar_ptr=full
        )


@cute.jit
def multiply_chunks(
    targets: tuple[cute.Tensor, ...], base: cute.Pointer, barriers: Barriers,
    chunks: cutlass.Int32, erases: cutlass.Constexpr,
):  # fmt: skip
    """The multiplier: the products of every chunk, of which two wait for nothing but operands."""
    mma = products()
    shared_keys, shared_queries, shared_outputs, shared_attention = targets[:4]
    local, update, output, erase = mma
    update_sum = _accumulator(update, base + UPDATE, UPDATE_TILE)
    state_sum = _accumulator(output, base + STATE, STATE_TILE)
    state_factor = _factor(update, base + FACTOR, UPDATE_TILE)
    update_factor = _factor(erase, base + FACTOR, STATE_TILE)
    key_factor = update.make_fragment_B(shared_keys)
    local_factor = local.make_fragment_A(shared_outputs)
    attention_factor = local.make_fragment_B(shared_attention)
    output_factor = output.make_fragment_A(shared_outputs)
    query_factor = output.make_fragment_B(shared_queries)
    update.set(tcgen05.Field.ACCUMULATE, True)
    output.set(tcgen05.Field.ACCUMULATE, True)
    erase.set(tcgen05.Field.ACCUMULATE, True)
    erase.set(tcgen05.Field.NEGATE_A, True)
    for i in cutlass.range(chunks):
        stage = i % STAGES
        cute.arch.mbarrier_wait(barriers.full + stage, i // STAGES % 2)
        after_sync()
        for k in cutlass.range_constexpr(cute.size(attention_factor, mode=[2])):
            local.set(tcgen05.Field.ACCUMULATE, k != 0)
            cute.gemm(
                local, update_sum, local_factor[None, None, k, stage],
                attention_factor[None, None, k, stage], update_sum,
            )  # fmt: skip
        cute.arch.mbarrier_wait(barriers.state_ready, i % 2)
        after_sync()
        for k in cutlass.range_constexpr(cute.size(key_factor, mode=[2])):
            cute.gemm(
                update, update_sum, state_factor[None, None, k],
                key_factor[None, None, k, stage], update_sum,
            )  # fmt: skip
        with cute.arch.elect_one():
            tcgen05.commit(barriers.update_ready)
        for k in cutlass.range_constexpr(cute.size(query_factor, mode=[2])):
            cute.gemm(
                output, state_sum, output_factor[None, None, k, stage],
                query_factor[None, None, k, stage], state_sum,
            )  # fmt: skip
        cute.arch.mbarrier_wait(barriers.update_written, i % 2)
        after_sync()
        if cutlass.const_expr(erases):
            erase_factor = erase.make_fragment_B(targets[-1])
            for k in cutlass.range_constexpr(cute.size(erase_factor, mode=[2])):
                cute.gemm(
                    erase, state_sum, update_factor[None, None, k],
                    erase_factor[None, None, k, stage], state_sum,
                )  # fmt: skip
        with cute.arch.elect_one():
            tcgen05.commit(barriers.empty + stage)
            tcgen05.commit(barriers.state_done)


@cute.jit
def own_rows(
    shared_decays: cute.Tensor, grad_final: cute.Tensor, given: cutlass.Int32,
    grad_states: cute.Tensor, grad_updates: cute.Tensor, grad_initial: cute.Tensor,
    base: cute.Pointer, barriers: Barriers, first: cutlass.Int32, chunks: cutlass.Int32,
    head: cutlass.Int32, heads: cutlass.Int32, sequence: cutlass.Int32,
    erases: cutlass.Constexpr,
):  # fmt: skip
    """An owner: what happens to the row of a value channel between products.

    The factor's columns hold dS until Kg dS is there, then dU.
    """
    thread, _, _ = cute.arch.thread_idx()
    end = sequence * heads + head
    row = cute.make_rmem_tensor(CHUNK, Float32)
    row.fill(0.0)
    exists = thread < grad_updates.shape[2]
    for half in cutlass.range_constexpr(KEYS // CHUNK):
        if exists and given != 0:
            _exchange(row, grad_final, end, thread, half, loads=True)
        store_row(row, base + STATE + CHUNK * half, thread)
    cute.arch.fence_view_async_tmem_store()
    for i in cutlass.range(chunks):
        index = (first + chunks - 1 - i) * heads + head
        stage = i % STAGES
        cute.arch.mbarrier_wait(barriers.full + stage, i // STAGES % 2)
        cute.arch.mbarrier_wait(barriers.state_done, (i + 1) % 2)
        after_sync()
        for half in cutlass.range_constexpr(KEYS // CHUNK):
            load_row(base + STATE + CHUNK * half, row, thread)
            cute.arch.fence_view_async_tmem_load()
            factor = rounded(row, Float16)
            store_factor(factor, base + FACTOR + CHUNK // 2 * half, thread)
            if exists:
                _exchange(factor, grad_states, index, thread, half, loads=False)
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
        factor = rounded(row, Float16)
        if cutlass.const_expr(erases):
            store_factor(factor, base + FACTOR, thread)
            cute.arch.fence_view_async_tmem_store()
        before_sync()
        cute.arch.mbarrier_arrive(barriers.update_written)
        if exists:
            cute.basic_copy(factor, grad_updates[cutlass.Int64(index), None, thread])
    cute.arch.mbarrier_wait(barriers.state_done, (chunks + 1) % 2)
    after_sync()
    for half in cutlass.range_constexpr(KEYS // CHUNK):
        load_row(base + STATE + CHUNK * half, row, thread)
        cute.arch.fence_view_async_tmem_load()
        if exists:
            _exchange(row, grad_initial, end, thread, half, loads=False)


def _accumulator(mma, place, tile):
    """Sums of a product in tensor memory."""
    return cute.make_tensor(place, mma.make_fragment_C(mma.partition_shape_C(tile[:2])).layout)


def _factor(mma, place, tile):
    """A left factor in tensor memory."""
    shape = mma.partition_shape_A((tile[0], tile[2]))
    return cute.make_tensor(
        cute.recast_ptr(place, dtype=Float16), mma.make_fragment_A(shape).layout
    )


def _exchange(row, states, index, channel, half, loads):
    """Copy half of the key channels of a value channel, as many as a state [K, V] has."""
    first = CHUNK * half
    width = min(CHUNK, states.shape[1] - first)
    if width > 0:
        column = cute.domain_offset((first,), states[cutlass.Int64(index), None, channel])
        there = cute.make_tensor(column.iterator, cute.make_layout(width, stride=states.stride[1]))
        here = cute.make_tensor(row.iterator, cute.make_layout(width))
        cute.basic_copy(*((there, here) if loads else (here, there)))


def reverse_state_scan(erases: bool):
    """The host function, for members that erase or for those that do not.

    Tensors are contiguous. Chunks of all sequences and heads are L, those of a chunk's heads one
    after the other; so are E ends of sequences. K and V are known when it is compiled.

    Args of the host function:
        query_decayed: Qg [tokens, H, K], float16.
        key_decayed: Kg [tokens, H, K], float16.
        erase_transformed: Ww [tokens, H, K], float16; anything if nothing is erased.
        chunk_decay: exp(a_C) [L, K], float32.
        attention: A [L, C, C], float16.
        grad_output: dO [tokens, H, V], float16.
        grad_final: dS of the final states [E, K, V], float32.
        grad_states: Takes dh [L, K, V], float16.
        grad_updates: Takes dU [L, C, V], float16.
        grad_initial: Takes dS of the initial states [E, K, V], float32.
        starts, stops, first_chunks: Of `Chunks`.
        given: Zero if `grad_final` is to be taken for zero.
    """

    @cute.jit
    def host(
        query_decayed: cute.Tensor,
        key_decayed: cute.Tensor,
        erase_transformed: cute.Tensor,
        chunk_decay: cute.Tensor,
        attention: cute.Tensor,
        grad_output: cute.Tensor,
        grad_final: cute.Tensor,
        grad_states: cute.Tensor,
        grad_updates: cute.Tensor,
        grad_initial: cute.Tensor,
        starts: cute.Tensor,
        stops: cute.Tensor,
        first_chunks: cute.Tensor,
        given: cutlass.Int32,
    ):
        found = [
            rows_before(key_decayed),
            rows_before(query_decayed),
            rows_before(grad_output),
            matrices(attention),
        ]
        if cutlass.const_expr(erases):
            found = [*found, rows_before(erase_transformed)]
        copies = [
            operand.copy(tensor) for operand, tensor in zip(operands(erases), found, strict=True)
        ]
        decay_atom, decays = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileG2SOp(),
            cute.make_tensor(chunk_decay.iterator, cute.select(chunk_decay.layout, mode=[1, 0])),
            cute.make_layout((KEYS, 1)),
            (KEYS, 1),
        )
        atoms, sources = zip(*copies, strict=True)
        heads = query_decayed.shape[1]
        reverse_state_scan_kernel(
            atoms, sources, decay_atom, decays, grad_final, given, grad_states, grad_updates,
            grad_initial, starts, stops, first_chunks, heads, erases,
        ).launch(grid=(first_chunks.shape[0] - 1, heads, 1), block=(THREADS, 1, 1))  # fmt: skip

    return host
