"""K#2 for Blackwell's tensor cores, and dA: gradients of a chunk's matrices and values.

    dRᵀ  =  dUᵀ T              [V, C], sums over C tokens
    dMᵀ  = −(U dRᵀ)            [C, C], sums over V; strictly upper
    dAᵀ  =  U dOᵀ              [C, C], sums over V; upper
    dv = dR∘w, dw = dR∘v       [C, V]

They are the gradients through U = T (w∘v − Kb h) and O = Qg h + A U, see `stages.py`; dKb = −dR hᵀ
is left to who uses it. dRᵀ, rounded to float16, is the right factor of dMᵀ; threads put it where dU
was, and TMA brings all other factors. While the tensor cores use it, threads write gradients of the
values. Where nothing is erased, dR is dU, and dA the only product. Two chunks share a block, see
`products.py`; for all widths two blocks share a multiprocessor.
"""

from typing import NamedTuple

import cutlass
from cutlass import cute
from cutlass.memory import SmemAllocator

from ..device import ABSENT, PER_CHANNEL
from .products import (
    CHUNKS,
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
    keep_from,
    lanes,
    load,
    multiply,
    places_of,
    rows,
    store,
)
from .tensor_memory import after_sync, before_sync, rounded
from .token_rows import matrices, rows_before

_COLUMNS = 256
_BARRIERS = 3
_BATCH = 8
"""Tokens whose values and gates a thread has under way at once."""


class Form(NamedTuple):
    """What the kernel is compiled for."""

    values: int
    """Rows of dRᵀ: 64 or 128."""
    erases: bool
    gate: int
    """Kind of w, as Triton's kernels name it."""

    def products(self) -> tuple[Product, Product, Product]:
        """What makes dAᵀ, dRᵀ and dMᵀ."""
        attention = Product(TOKENS, self.values, False, False, 0)
        residual = Product(self.values, TOKENS, True, True, attention.end)
        return attention, residual, Product(TOKENS, self.values, False, True, residual.end)

    def factors(self) -> tuple[Factor, ...]:
        """What TMA fetches: of U and dO; then, if something is erased, of dU and T."""
        attention, residual, _ = self.products()
        found = Factor(attention, True), Factor(attention, False)
        if self.erases:
            found += Factor(residual, True), Factor(residual, False)
        return found


def transform_adjoint(form: Form):
    """The host function of a form.

    Tensors are contiguous. Chunks of all sequences and heads are L, those of a chunk's heads one
    after the other. C = 64 and V are known when it is compiled.

    Args of the host function:
        inverse: T [L, C, C], float16; anything if nothing is erased.
        updates: U [tokens, H, V], float16.
        grad_output: dO [tokens, H, V], float16.
        grad_updates: dU [L, C, V], float16.
        value: v [tokens, H, V], float16.
        gate: w [tokens, H] or [tokens, H, V], float32; anything if it is absent.
        starts, stops: Of `Chunks`.
        grad_attention: Takes dA [L, C, C], zeros included, float16.
        erasure: Takes dM [L, C, C], zeros included, float16; not touched if nothing is erased.
        residual: Takes dR [tokens, H, V], float16; not touched if nothing is erased.
        grad_value: Takes dv [tokens, H, V], float16.
        grad_gate: Takes dw [tokens, H, V], float32; not touched if w is absent.
    """

    @cute.jit
    def host(
        inverse: cute.Tensor,
        updates: cute.Tensor,
        grad_output: cute.Tensor,
        grad_updates: cute.Tensor,
        value: cute.Tensor,
        gate: cute.Tensor,
        starts: cute.Tensor,
        stops: cute.Tensor,
        grad_attention: cute.Tensor,
        erasure: cute.Tensor,
        residual: cute.Tensor,
        grad_value: cute.Tensor,
        grad_gate: cute.Tensor,
    ):
        found = [rows_before(updates), rows_before(grad_output)]
        if cutlass.const_expr(form.erases):
            found = [*found, matrices(grad_updates), matrices(inverse)]
        atoms, sources = copies(form.factors(), found)
        transform_adjoint_kernel(
            atoms, sources, grad_updates, starts, stops, grad_attention, erasure,
            _Values(value, gate, residual, grad_value, grad_gate), form,
        ).launch(
            grid=(cute.ceil_div(grad_attention.shape[0], CHUNKS), 1, 1), block=(THREADS, 1, 1)
        )  # fmt: skip

    return host


class _Values(NamedTuple):
    """What has a row for each token, and a column for each value channel."""

    value: cute.Tensor
    gate: cute.Tensor
    residual: cute.Tensor
    grad_value: cute.Tensor
    grad_gate: cute.Tensor


@cute.kernel
def transform_adjoint_kernel(
    atoms: tuple[cute.CopyAtom, ...],
    sources: tuple[cute.Tensor, ...],
    grad_updates: cute.Tensor,
    starts: cute.Tensor,
    stops: cute.Tensor,
    grad_attention: cute.Tensor,
    erasure: cute.Tensor,
    values: _Values,
    form: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    index, _, _ = cute.arch.block_idx()
    places = places_of(index, values.value.shape[1], starts, stops)
    attention_product, residual_product, erasure_product = form.products()
    memory = SmemAllocator()
    factors = form.factors()
    shared = [factor.place(memory) for factor in factors]
    block = begin(memory, _BARRIERS, _COLUMNS)
    loaded, multiplied, base = block.loaded, block.multiplied, block.base

    if warp == 0:
        if cutlass.const_expr(form.erases):
            fetch(factors[2:], atoms[2:], sources[2:], shared[2:], places, loaded)
        fetch(factors[:2], atoms[:2], sources[:2], shared[:2], places, loaded + 1)
        if cutlass.const_expr(form.erases):
            cute.arch.mbarrier_wait(loaded, 0)
            multiply(residual_product, *shared[2:], base)
            commit(multiplied)
        cute.arch.mbarrier_wait(loaded + 1, 0)
        multiply(attention_product, *shared[:2], base)
        commit(multiplied + 1)

    if cutlass.const_expr(form.erases):
        residual = Factor(erasure_product, False).view(shared[2])
        cute.arch.mbarrier_wait(multiplied, 0)
        for chunk, _, channel, row in rows(residual_product, base, thread, places):
            _keep(row, residual, chunk, channel)
        cute.arch.fence_proxy("async.shared", space="cta")
        before_sync()
        everyone().arrive_and_wait()
        if warp == 0:
            after_sync()
            multiply(erasure_product, shared[0], residual, base)
            commit(multiplied + 2)
        for _, place, channel, row in rows(residual_product, base, thread, places):
            _store_values(row, place, channel, values, form)
    else:
        for _, place, channel in lanes(residual_product, thread, places):
            row = cute.make_rmem_tensor(TOKENS, SUM)
            load(row, grad_updates, place, channel)
            _store_values(row, place, channel, values, form)

    cute.arch.mbarrier_wait(multiplied + 1, 0)
    for _, place, channel, row in rows(attention_product, base, thread, places):
        keep_from(row, channel)
        store(row, grad_attention, place, channel)
    if cutlass.const_expr(form.erases):
        cute.arch.mbarrier_wait(multiplied + 2, 0)
        for _, place, channel, row in rows(erasure_product, base, thread, places):
            row.store(-row.load())
            keep_from(row, channel + 1)
            store(row, erasure, place, channel)
    end(block)


def _keep(row, target, chunk, channel):
    """Round a row and put it where it is part of the right factor."""
    place = target[(None, channel % 16), 0, channel // 16, chunk]
    cute.autovec_copy(rounded(row, OPERAND), place)


@cute.jit
def _store_values(row, place, channel, values: _Values, form: cutlass.Constexpr):
    """dv = dR∘w, dw = dR∘v, and dR itself unless it is dU, at the tokens that there are."""
    head = place.head
    if place.count > 0 and channel < values.value.shape[2]:
        for first in cutlass.range_constexpr(0, TOKENS, _BATCH):
            tokens = [_token(place, first + k) for k in range(_BATCH)]
            found = [_value_and_gate(values, token, head, channel, form) for token in tokens]
            for k in cutlass.range_constexpr(_BATCH):
                if first + k < place.count:
                    own = row[first + k]
                    if cutlass.const_expr(form.erases):
                        values.residual[tokens[k], head, channel] = own.to(OPERAND)
                    if cutlass.const_expr(form.gate != ABSENT.value):
                        value, gate = found[k]
                        values.grad_gate[tokens[k], head, channel] = own * value.to(SUM)
                        own = own * gate
                    values.grad_value[tokens[k], head, channel] = own.to(OPERAND)


def _token(place, row):
    """The token of a row, or the last of the chunk if it has no such row."""
    return cutlass.Int64(place.start + cutlass.min(row, place.count - 1))


def _value_and_gate(values, token, head, channel, form):
    """v and w of a token; None if w is absent, as dw is then."""
    if form.gate == ABSENT.value:
        return None
    channels = (channel,) if form.gate == PER_CHANNEL.value else ()
    return values.value[token, head, channel], values.gate[(token, head, *channels)]
