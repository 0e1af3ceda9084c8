"""Stages of `stages.py` by native kernels: the same arguments and results, operands float16."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..stages import ReverseScan
from .compilation import CHUNK, KEYS

Run = Callable[..., None]
"""What runs a compiled host function on tensors, such as the virtual GPU's `VirtualFunction`."""


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
    if (tokens, keys) != (CHUNK, KEYS):
        raise ValueError(
            f"the native K#1 takes chunks of {CHUNK} tokens and {KEYS} key channels, not {tokens} "
            f"and {keys}"
        )
    values = grad_output.shape[-1]
    count = batch * heads * chunks

    def operand(x: Tensor) -> Tensor:
        return x.reshape(count, *x.shape[3:]).to(torch.float16).contiguous()

    def wide(x: Tensor, *shape: int) -> Tensor:
        return x.reshape(*shape).to(torch.float32).contiguous()

    grad_states, grad_initial = (
        torch.empty(length, keys, values) for length in (count, batch * heads)
    )
    grad_updates = torch.empty(count, tokens, values)
    run(
        operand(query_decayed),
        operand(key_decayed),
        operand(erase_transformed),
        wide(total.exp(), count, keys),
        operand(grad_output),
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
