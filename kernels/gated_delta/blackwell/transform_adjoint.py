"""K#2 for Blackwell's tensor cores: the gradients through U = T (w∘v − Kb h), see `stages.py`.

    dRᵀ  =  dUᵀ T              [V, C], sums over C tokens
    dKbᵀ = −h dRᵀ              [K, C], sums over V
    dMᵀ  = −(U dRᵀ)            [C, C], sums over V; strictly upper

The second and the third have one right factor, dRᵀ rounded to float16, which threads put into
shared memory as they get it; TMA brings the others. Two chunks share a block, see `products.py`.

Tensor memory, in columns: dKbᵀ of both chunks from 0 to 127, dMᵀ from 128 to 191; dRᵀ, which has
been read by then, from 0. One allocation of 256 lets two blocks share a multiprocessor.
"""

import cutlass
from cutlass import cute
from cutlass.memory import SmemAllocator

from .products import (
    CHUNKS,
    KEYS,
    OPERAND,
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
    keep_from,
    multiply,
    rounded,
    rows,
    store,
)
from .tensor_memory import after_sync, before_sync

COLUMNS = 256
_BARRIERS = 2


def _products(values: int) -> tuple[Product, Product, Product]:
    """What makes dRᵀ, dKbᵀ and dMᵀ."""
    second = Product(KEYS, values, False, True, 0)
    return (
        Product(values, TOKENS, True, True, 0),
        second,
        Product(TOKENS, values, False, True, second.end),
    )


def _factors(values: int) -> tuple[Factor, Factor, Factor, Factor]:
    """What TMA fetches: of dU and T, then of h and U."""
    first, second, third = _products(values)
    return Factor(first, True), Factor(first, False), Factor(second, True), Factor(third, True)


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
    atoms, sources = copies(_factors(values), (grad_updates, inverse, states, updates))
    _kernel(atoms, sources, written, erased, erasure, values).launch(
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
    index, _, _ = cute.arch.block_idx()
    start = index * CHUNKS
    first, second, third = _products(values)
    factors = _factors(values)
    memory = SmemAllocator()
    grad_updates, inverse, states, updates = (factor.place(memory) for factor in factors)
    residual = Factor(second, False).place(memory)
    block = begin(memory, _BARRIERS, COLUMNS)
    loaded, multiplied, base = block.loaded, block.multiplied, block.base

    if warp == 0:
        fetch(factors[:2], atoms[:2], sources[:2], (grad_updates, inverse), start, loaded)
        fetch(factors[2:], atoms[2:], sources[2:], (states, updates), start, loaded + 1)
        cute.arch.mbarrier_wait(loaded, 0)
        multiply(first, grad_updates, inverse, base)
        commit(multiplied)

    cute.arch.mbarrier_wait(multiplied, 0)
    residuals = rows(first, base, thread)
    for chunk, channel, row in residuals:
        _keep(row, residual, chunk, channel)
    cute.arch.fence_proxy("async.shared", space="cta")
    before_sync()
    everyone().arrive_and_wait()
    if warp == 0:
        after_sync()
        cute.arch.mbarrier_wait(loaded + 1, 0)
        multiply(second, states, residual, base)
        multiply(third, updates, residual, base)
        commit(multiplied + 1)
    for chunk, channel, row in residuals:
        store(row, written, start + chunk, channel)

    cute.arch.mbarrier_wait(multiplied + 1, 0)
    for chunk, channel, row in rows(second, base, thread):
        row.store(-row.load())
        store(row, erased, start + chunk, channel)
    for chunk, channel, row in rows(third, base, thread):
        row.store(-row.load())
        keep_from(row, channel + 1)
        store(row, erasure, start + chunk, channel)
    end(block)


def _keep(row, target, chunk, channel):
    """Round a row and put it where it is part of the right factor."""
    place = target[(None, channel % 16), 0, channel // 16, chunk]
    cute.autovec_copy(rounded(row, OPERAND), place)
