"""Launches of the native stages, on what Triton's forward kept and as it lies.

Shapes of scratch tensors: `forward_kernels.py`. Operands are float16, and so are results that enter
further products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..device import ABSENT
from ..forward_pass import Scratch
from ..setting import Setting, Tokens
from .compilation import CHUNK

Run = Callable[..., None]
"""What runs a compiled host function on tensors, such as the virtual GPU's `VirtualFunction`."""


class ReverseScan(NamedTuple):
    """What K#1 leaves."""

    grad_states: Tensor
    """dh [chunks, H, K, V], of the state that leaves a chunk, float16."""
    grad_updates: Tensor
    """dU [chunks, H, C, V], float16; zeros where a chunk has no token."""
    grad_initial: Tensor
    """[sequences, H, K, V], float32."""


class TokenGradients(NamedTuple):
    """Gradients of packed inputs. Each [tokens, H, K]; those of absent gates are stubs."""

    q: Tensor
    k: Tensor
    """Like q in float16."""
    g: Tensor
    b: Tensor
    """Like g in float32; of a gate per head, what it has to be summed from."""


class ChunkGradients(NamedTuple):
    """What K#2 leaves; stubs for what a member has not."""

    attention: Tensor
    """dA [chunks, H, C, C], float16."""
    erasure: Tensor
    """dM [chunks, H, C, C], float16."""
    residual: Tensor
    """dR [tokens, H, V], float16."""
    value: Tensor
    """dv [tokens, H, V], float16."""
    gate: Tensor
    """dw [tokens, H, V], float32."""


def reverse_state_scan(
    run: Run, kept: Scratch, grad_output: Tensor, grad_final: Tensor | None, s: Setting
) -> ReverseScan:
    """K#1, see `stages.reverse_state_scan`, with Aᵀ dO of `stages.output_adjoint` in it.

    Args:
        run: Runs `compile_reverse_state_scan`, for this setting.
        kept: Of the forward.
        grad_output: dO [tokens, H, V], float16.
        grad_final: Gradient of the final states [sequences, H, K, V], float32; None for zero.
        s: Of the call.
    """
    made = ReverseScan(
        torch.empty_like(kept.states),
        kept.states.new_empty(*s.grid, CHUNK, s.value_dim),
        kept.states.new_empty(s.end_shape, dtype=torch.float32),
    )
    run(
        kept.query_decayed,
        kept.key_decayed,
        kept.erase_transformed,
        kept.chunk_decay.flatten(0, 1),
        kept.attention.flatten(0, 1),
        grad_output,
        (made.grad_initial if grad_final is None else grad_final).flatten(0, 1),
        *(x.flatten(0, 1) for x in made),
        *s.places.values(),
        s.chunks.first_chunks,
        int(grad_final is not None),
    )
    return made


def transform_adjoint(
    run: Run, t: Tokens, kept: Scratch, grad_output: Tensor, grad_updates: Tensor, s: Setting
) -> ChunkGradients:
    """K#2 but for dKb, see `stages.transform_adjoint`; dA of `stages.output_adjoint`; dv and dw.

    Args:
        run: Runs `compile_transform_adjoint`, for this setting.
        t: Inputs of the forward.
        kept: What it kept.
        grad_output: dO [tokens, H, V], float16.
        grad_updates: dU, of K#1.
        s: Of the call.
    """
    erases = s.b != ABSENT.value
    stub, wide_stub = (t.v.new_empty(1, dtype=dtype) for dtype in (t.v.dtype, torch.float32))
    made = ChunkGradients(
        torch.empty_like(kept.attention),
        torch.empty_like(kept.attention) if erases else stub,
        torch.empty_like(t.v) if erases else stub,
        torch.empty_like(t.v),
        wide_stub if t.w is None else torch.empty_like(t.v, dtype=torch.float32),
    )
    run(
        _flat(kept.inverse),
        kept.updates,
        grad_output,
        _flat(grad_updates),
        t.v,
        wide_stub if t.w is None else t.w.float(),
        *s.places.values(),
        _flat(made.attention),
        _flat(made.erasure),
        made.residual,
        made.value,
        made.gate,
    )
    return made


def token_gradients(
    run: Run,
    t: Tokens,
    kept: Scratch,
    grad_output: Tensor,
    grad_states: Tensor,
    made: ChunkGradients,
    s: Setting,
) -> TokenGradients:
    """The last stage; see `token_gradients.py`.

    Args:
        run: Runs `compile_token_gradients`, for this setting.
        t: Inputs of the forward.
        kept: What it kept.
        grad_output: dO [tokens, H, V], float16.
        grad_states: dh, of K#1.
        made: By K#2.
        s: Of the call.
    """
    none = t.k.new_empty(1, 1, dtype=torch.float32)

    def rows(x: Tensor | None) -> Tensor:
        return none if x is None else x.float().reshape(len(t.k) * s.heads, -1)

    def like(x: Tensor | None) -> Tensor:
        return none if x is None else none.new_empty(len(t.k) * s.heads, s.key_dim)

    keys = [x.reshape(-1, s.key_dim) for x in (t.q, t.k)]
    results = [*map(torch.empty_like, keys), like(t.g), like(t.b)]
    run(
        _flat(kept.states),
        grad_output,
        made.residual,
        _flat(grad_states),
        kept.updates,
        _flat(made.attention),
        _flat(made.erasure),
        *s.places.values(),
        *keys,
        *(rows(x) for x in (t.g, t.b)),
        *results,
        s.scale,
    )
    return TokenGradients(*(x if x is none else x.view(t.k.shape) for x in results))


def _flat(matrices: Tensor) -> Tensor:
    """[chunks, H, …] → [chunks · H, …]; a stub as it is."""
    return matrices.flatten(0, 1) if matrices.dim() > 1 else matrices
