"""Stages of `stages.py` by native kernels: the same arguments and results, operands float16."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..setting import Tokens
from ..stages import ReverseScan, TransformGradients
from .compilation import CHUNK, KEYS

Run = Callable[..., None]
"""What runs a compiled host function on tensors, such as the virtual GPU's `VirtualFunction`."""


class TokenGradients(NamedTuple):
    """Gradients of packed inputs. Each [tokens, H, K]; those of absent gates are stubs."""

    q: Tensor
    k: Tensor
    """Like q in float16."""
    g: Tensor
    b: Tensor
    """Like g in float32; of a gate per head, what it has to be summed from."""


def output_adjoint(
    run: Run, grad_output: Tensor, attention: Tensor, updates: Tensor
) -> tuple[Tensor, Tensor]:
    """dA and Aᵀ dO; see `stages.output_adjoint`.

    Args:
        run: Runs `compile_output_adjoint(V)`.
        grad_output: dO [B, H, N, C, V]; like all operands, rounded to float16.
        attention: A [B, H, N, C, C].
        updates: U [B, H, N, C, V].

    Raises:
        ValueError: C is not what the kernel is made for.
    """
    tokens, values = grad_output.shape[-2:]
    _check("output's adjoint", tokens)
    operands = _operands(grad_output, attention, updates)
    grad_attention, local = _results(operands[0], (tokens, tokens), (tokens, values))
    run(*operands, grad_attention, local)
    return grad_attention.reshape(attention.shape), local.reshape(grad_output.shape)


def transform_adjoint(
    run: Run, inverse: Tensor, updates: Tensor, states: Tensor, grad_updates: Tensor
) -> TransformGradients:
    """K#2; see `stages.transform_adjoint`.

    Args:
        run: Runs `compile_transform_adjoint(V)`.
        inverse: T [B, H, N, C, C]; like all operands, rounded to float16.
        updates: U [B, H, N, C, V].
        states: h [B, H, N, K, V].
        grad_updates: dU [B, H, N, C, V].

    Raises:
        ValueError: K or C is not what the kernel is made for.
    """
    tokens, keys, values = updates.shape[-2], *states.shape[-2:]
    _check("K#2", tokens, keys)
    operands = _operands(inverse, updates, states, grad_updates)
    results = _results(operands[0], (tokens, values), (tokens, keys), (tokens, tokens))
    run(*operands, *results)
    return TransformGradients(*(x.reshape(*updates.shape[:3], *x.shape[1:]) for x in results))


def reverse_state_scan(
    run: Run,
    query_decayed: Tensor,
    key_decayed: Tensor,
    erase_transformed: Tensor,
    total: Tensor,
    grad_output: Tensor,
    grad_updates_local: Tensor,
    grad_final: Tensor,
) -> ReverseScan:
    """K#1; see `stages.reverse_state_scan`.

    Args:
        run: Runs `compile_reverse_state_scan(V)`.
        query_decayed: Qg [B, H, N, C, K]; like all operands, rounded to float16.
        key_decayed: Kg [B, H, N, C, K].
        erase_transformed: Ww [B, H, N, C, K].
        total: a_C [B, H, N, 1, K].
        grad_output: dO [B, H, N, C, V].
        grad_updates_local: Aᵀ dO [B, H, N, C, V]; added in float32.
        grad_final: Gradient of the final state [B, H, K, V], in float32.

    Raises:
        ValueError: K or C is not what the kernel is made for.
    """
    batch, heads, chunks, tokens, keys = query_decayed.shape
    _check("K#1", tokens, keys)
    values = grad_output.shape[-1]
    count = batch * heads * chunks
    query, key, erase, output = _operands(
        query_decayed, key_decayed, erase_transformed, grad_output
    )

    def wide(x: Tensor, *shape: int) -> Tensor:
        return x.reshape(*shape).to(torch.float32).contiguous()

    grad_states, grad_updates = _results(query, (keys, values), (tokens, values))
    grad_initial = grad_states.new_empty(batch * heads, keys, values)
    run(
        query,
        key,
        erase,
        wide(total.exp(), count, keys),
        output,
        wide(grad_updates_local, count, tokens, values),
        wide(grad_final, batch * heads, keys, values),
        grad_states,
        grad_updates,
        grad_initial,
        chunks,
    )
    return ReverseScan(
        grad_states.reshape(batch, heads, chunks, keys, values),
        grad_updates.reshape(batch, heads, chunks, tokens, values),
        grad_initial.reshape(batch, heads, keys, values),
    )


def token_gradients(
    run: Run,
    tokens: Tokens,
    scale: float,
    starts: Tensor,
    counts: Tensor,
    states: Tensor,
    grad_output: Tensor,
    grad_states: Tensor,
    updates: Tensor,
    residual: Tensor | None,
    grad_attention: Tensor,
    grad_erasure: Tensor | None,
) -> TokenGradients:
    """The last stage; see `token_gradients.py`.

    Args:
        run: Runs `compile_token_gradients(V, …)`, for the gates that there are.
        tokens: Packed, with at most `KEYS` key channels; q and k float16.
        scale: Of the queries.
        starts: First token of each chunk [S, N].
        counts: Tokens of each chunk [S, N]; 0 where there is none.
        states: h [S, H, N, K, V]; like all operands, rounded to float16.
        grad_output: dO [S, H, N, C, V], with zeros where there is no token, like updates.
        grad_states: dh [S, H, N, K, V].
        updates: U [S, H, N, C, V].
        residual: dR [S, H, N, C, V], or None if nothing is erased.
        grad_attention: dA [S, H, N, C, C].
        grad_erasure: dM [S, H, N, C, C], or None if nothing is erased.

    Raises:
        ValueError: K or C is not what the kernel is made for.
    """
    _check("gradients of tokens", grad_output.shape[-2], states.shape[-2])
    heads, width = tokens.k.shape[1:]
    none = tokens.k.new_empty(1, 1, dtype=torch.float32)

    def rows(x: Tensor | None) -> Tensor:
        return none if x is None else x.float().reshape(tokens.k.shape[0] * heads, -1)

    def like(x: Tensor | None) -> Tensor:
        return none if x is None else none.new_empty(len(tokens.k) * heads, width)

    erased = grad_output if residual is None else residual
    erasure = grad_attention if grad_erasure is None else grad_erasure
    operands = _operands(states, grad_output, erased, grad_states, updates, grad_attention, erasure)
    keys = [x.reshape(-1, width) for x in (tokens.q, tokens.k)]
    results = [*map(torch.empty_like, keys), like(tokens.g), like(tokens.b)]
    run(
        *operands,
        starts.to(torch.int32),
        counts.to(torch.int32),
        *keys,
        rows(tokens.g),
        rows(tokens.b),
        *results,
        heads,
        scale,
    )
    made = [x if x is none else x.view(tokens.k.shape) for x in results]
    return TokenGradients(*made)


def _check(stage: str, tokens: int, keys: int = KEYS) -> None:
    if (tokens, keys) != (CHUNK, KEYS):
        raise ValueError(
            f"the native {stage} takes chunks of {CHUNK} tokens and {KEYS} key channels, not "
            f"{tokens} and {keys}"
        )


def _operands(*tensors: Tensor) -> list[Tensor]:
    """[B, H, N, …] → [B·H·N, …] in float16."""
    return [x.reshape(-1, *x.shape[3:]).to(torch.float16).contiguous() for x in tensors]


def _results(like: Tensor, *shapes: tuple[int, int]) -> list[Tensor]:
    """Room for as many chunks in float32."""
    return [like.new_empty(len(like), *shape, dtype=torch.float32) for shape in shapes]
