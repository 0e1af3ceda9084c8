"""Stages that are two products with nothing in between, for Blackwell's tensor cores.

The output's adjoint, before K#1; see `stages.py`:

    (Aᵀ dO)ᵀ = dOᵀ A           [V, C], sums over C tokens
    dAᵀ      = U dOᵀ           [C, C], sums over V; upper

dO is the left factor of one product and the right one of the other, and the same bytes in shared
memory are both. `products.py` says how two chunks share a block.
"""

from typing import NamedTuple

import cutlass
from cutlass import cute
from cutlass.memory import SmemAllocator

from .products import (
    CHUNKS,
    THREADS,
    TOKENS,
    Factor,
    Product,
    begin,
    commit,
    copies,
    end,
    fetch,
    keep_from,
    multiply,
    rows,
    store,
)


class _Stage(NamedTuple):
    """Two products."""

    products: tuple[Product, Product]
    factors: tuple[tuple[Factor, ...], tuple[Factor, ...]]
    """What TMA fetches before the first, and then before the second."""
    sides: tuple[tuple[int, int], tuple[int, int]]
    """Which of these are the left and the right factor of each."""
    upper: tuple[bool, bool]
    """Whether a result is kept only at tokens from the channel's own on."""

    @property
    def columns(self) -> int:
        """Of tensor memory: a power of two."""
        return 1 << (self.products[-1].end - 1).bit_length()


def _output_stage(values: int) -> _Stage:
    first = Product(values, TOKENS, True, True, 0)
    second = Product(TOKENS, values, False, False, first.end)
    fetched = (Factor(first, True), Factor(first, False)), (Factor(second, True),)
    return _Stage((first, second), fetched, ((0, 1), (2, 0)), (False, True))


@cute.jit
def output_adjoint(
    grad_output: cute.Tensor,
    attention: cute.Tensor,
    updates: cute.Tensor,
    grad_attention: cute.Tensor,
    local: cute.Tensor,
):
    """Launch the kernel for all chunks of all batch entries and heads, L of them.

    C = 64 and V = 64 or 128 are known when it is compiled, L when it is called.

    Args:
        grad_output: dO [L, C, V], float16.
        attention: A [L, C, C], float16.
        updates: U [L, C, V], float16.
        grad_attention: Takes dA [L, C, C], zeros included.
        local: Takes Aᵀ dO [L, C, V].
    """
    stage = _output_stage(grad_output.shape[2])
    _launch(stage, (grad_output, attention, updates), (local, grad_attention))


def _launch(stage, tensors, results):
    first, second = stage.factors
    atoms, sources = copies(first + second, tensors)
    _kernel(atoms, sources, *results, stage).launch(
        grid=(cute.ceil_div(results[0].shape[0], CHUNKS), 1, 1), block=(THREADS, 1, 1)
    )


@cute.kernel
def _kernel(
    atoms: tuple[cute.CopyAtom, ...],
    sources: tuple[cute.Tensor, ...],
    first_result: cute.Tensor,
    second_result: cute.Tensor,
    stage: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    index, _, _ = cute.arch.block_idx()
    start = index * CHUNKS
    memory = SmemAllocator()
    places = [factor.place(memory) for factors in stage.factors for factor in factors]
    block = begin(memory, len(stage.products), stage.columns)
    if warp == 0:
        _issue(stage, atoms, sources, places, start, block)
    _finish(stage, (first_result, second_result), thread, start, block)
    end(block)


def _issue(stage, atoms, sources, places, start, block):
    """Have factors fetched, and multiplied as they come."""
    done = 0
    for index, factors in enumerate(stage.factors):
        some = slice(done, done + len(factors))
        barrier = block.loaded + index
        fetch(factors, atoms[some], sources[some], places[some], start, barrier)
        done = some.stop
    for index, (product, sides) in enumerate(zip(stage.products, stage.sides, strict=True)):
        cute.arch.mbarrier_wait(block.loaded + index, 0)
        left, right = (
            Factor(product, is_left).view(places[side])
            for is_left, side in zip((True, False), sides, strict=True)
        )
        multiply(product, left, right, block.base)
        commit(block.multiplied + index)


def _finish(stage, results, thread, start, block):
    """Write results as they come."""
    each = zip(stage.products, stage.upper, results, strict=True)
    for index, (product, upper, result) in enumerate(each):
        cute.arch.mbarrier_wait(block.multiplied + index, 0)
        for chunk, channel, row in rows(product, block.base, thread):
            if upper:
                keep_from(row, channel)
            store(row, result, start + chunk, channel)
