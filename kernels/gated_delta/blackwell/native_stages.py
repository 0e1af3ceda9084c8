"""Stages of `stages.py` by native kernels: the same arguments and results, operands float16."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..stages import ReverseScan, TransformGradients
from .compilation import CHUNK, KEYS

Run = Callable[..., None]
"""What runs a compiled host function on tensors, such as the virtual GPU's `VirtualFunction`."""


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


def state_gradients(
    run: Run, grad_output: Tensor, updates: Tensor, states: Tensor, grad_states: Tensor
) -> tuple[Tensor, Tensor]:
    """dQg and dKg; see `stages.state_gradients`.

    Args:
        run: Runs `compile_state_gradients(V)`.
        grad_output: dO [B, H, N, C, V]; like all operands, rounded to float16.
        updates: U [B, H, N, C, V].
        states: h [B, H, N, K, V].
        grad_states: dh [B, H, N, K, V].

    Raises:
        ValueError: K or C is not what the kernel is made for.
    """
    tokens, keys = updates.shape[-2], states.shape[-2]
    _check("gradient through states", tokens, keys)
    operands = _operands(grad_output, updates, states, grad_states)
    query, key = _results(operands[0], (tokens, keys), (tokens, keys))
    run(*operands, query, key)
    shape = *updates.shape[:3], tokens, keys
    return query.reshape(shape), key.reshape(shape)


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
