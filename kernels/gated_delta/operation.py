"""The public function, its checks, and its place in autograd."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .backward_pass import Backward, in_triton, repair_gradients
from .chunks import Chunks, equal_chunks, ragged_chunks
from .forward_pass import Scratch, run_forward
from .setting import CHUNKS, OPERANDS, Setting, Tokens, setting_for

WIDEST = 256
"""Largest key and value width: a scan keeps a state tile in registers."""


def gated_delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    b: Tensor | None = None,
    w: Tensor | None = None,
    *,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    backward: Callable[[Setting], Backward] = in_triton,
) -> tuple[Tensor, Tensor]:
    """Run the gated delta rule over the tokens of each head, differentiably.

        S_t = (I − k_t (b_t∘k_t)ᵀ) Diag(exp g_t) S_{t−1} + k_t (w_t∘v_t)ᵀ
        o_t = S_tᵀ (scale · q_t)

    Which gates are given chooses the member of the family:

    | member | g | b | w |
    |---|---|---|---|
    | linear attention | None | None | None |
    | gated linear attention | [B, T, H, K] | None | None |
    | state-space duality, Mamba-2 | [B, T, H] | None | None |
    | delta rule | None | β [B, T, H] | β |
    | gated delta rule | [B, T, H] | β [B, T, H] | β |
    | Kimi delta attention | [B, T, H, K] | β [B, T, H] | β |
    | gated delta net 2 | [B, T, H, K] | [B, T, H, K] | [B, T, H, V] |

    The work is chunkwise (64 tokens, 32 for float32) and bitwise deterministic. A sequence with a
    NaN or an infinity in its inputs, other than g = −inf, is run token by token, so that outputs
    have them where the definition has them; so are gradients, also where a given one is not finite.
    Matrix products take operands in the dtype of q, k, v and add in float32; float32 operands never
    become TF32. States are carried in float32 and kept for the backward in the dtype of q.

    Args:
        q: Queries [B, T, H, K], float32, float16 or bfloat16; K at most 256.
        k: Keys [B, T, H, K] in the dtype of q. The recurrence is bounded only if b‖k‖² ≤ 2, so
            bring keys to unit length first.
        v: Values [B, T, H, V] in the dtype of q; V at most 256.
        g: Natural logarithms of the decays, [B, T, H] or [B, T, H, K], at most zero; −inf forgets
            everything. None for no decay. Gates may have any floating dtype.
        b: Erase gates, [B, T, H] or [B, T, H, K]. None erases nothing.
        w: Write gates, [B, T, H] or [B, T, H, V]. None writes v as it is.
        scale: Factor of the queries; K^-1/2 if None.
        initial_state: S_0 [B, H, K, V], or [sequences, H, K, V] with `cu_seqlens`; zero if None.
        cu_seqlens: Borders of sequences packed along T, with B = 1: ascending integers from 0 to
            T, [sequences + 1]. Reading them waits for the device.
        backward: Which kernels make the gradients. By default all are Triton's; `natively` and
            `natively_or_in_triton` of the package `blackwell` choose those for sm_100a.

    Returns:
        Outputs [B, T, H, V] in the dtype of v, and the final states in float32, shaped as
        `initial_state`.

    Raises:
        TypeError: q, k and v differ in dtype, or a dtype is not one of the above.
        ValueError: A shape or a device does not fit; `backward` does not take the call.

    Source: Eq. (1) of arXiv 2605.22791; derivation in `README.md`.
    """
    _check_dtypes(q, k, v, (g, b, w), initial_state)
    batch, length, heads, key_dim = _check_tokens(q, k, v)
    for name, gate, width in (("g", g, key_dim), ("b", b, key_dim), ("w", w, v.shape[3])):
        shapes = ((batch, length, heads), (batch, length, heads, width))
        if gate is not None and tuple(gate.shape) not in shapes:
            raise ValueError(f"{name} has shape {tuple(gate.shape)}, not one of {shapes}")
    if cu_seqlens is None:
        chunks = equal_chunks(batch, length, CHUNKS[q.dtype], q.device)
    else:
        _check_borders(cu_seqlens, batch, length)
        chunks = ragged_chunks(cu_seqlens.to(q.device), CHUNKS[q.dtype])
    wanted = (chunks.sequences, heads, key_dim, v.shape[3])
    if initial_state is not None and tuple(initial_state.shape) != wanted:
        raise ValueError(f"initial_state has shape {tuple(initial_state.shape)}, not {wanted}")
    present = [x for x in (q, k, v, g, b, w, initial_state) if x is not None]
    if len({x.device for x in present}) > 1:
        raise ValueError(
            f"tensors lie on {sorted({str(x.device) for x in present})}, not on one device"
        )
    scale = key_dim**-0.5 if scale is None else scale
    with _on(q.device):
        return _GatedDelta.apply(q, k, v, g, b, w, initial_state, scale, chunks, backward)


class _GatedDelta(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor | None,
        b: Tensor | None,
        w: Tensor | None,
        initial: Tensor | None,
        scale: float,
        chunks: Chunks,
        backward: Callable[[Setting], Backward],
    ) -> tuple[Tensor, Tensor]:
        packed = [_pack(x) for x in (q, k, v, g, b, w)]
        start = None if initial is None else initial.contiguous()
        tokens = Tokens(*packed)
        setting = setting_for(tokens, chunks, scale)
        ctx.run_backward = backward(setting)
        output, final, scratch = run_forward(tokens, setting, start)
        ctx.save_for_backward(*packed, *scratch)
        ctx.set_materialize_grads(False)
        ctx.setting, ctx.batch = setting, q.shape[0]
        ctx.gates = [None if x is None else (x.shape, x.dtype) for x in (g, b, w)]
        ctx.initial_dtype = None if initial is None else initial.dtype
        return output.view(v.shape), final

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor | None, grad_final: Tensor | None) -> tuple:
        packed, scratch = ctx.saved_tensors[:6], Scratch(*ctx.saved_tensors[6:])
        tokens = Tokens(*packed)
        grad_output = torch.zeros_like(tokens.v) if grad_output is None else _pack(grad_output)
        grad_final = None if grad_final is None else grad_final.contiguous()
        with _on(tokens.q.device):
            grads = ctx.run_backward(tokens, ctx.setting, scratch, grad_output, grad_final)
            repair_gradients(tokens, ctx.setting, scratch, grad_output, grad_final, grads)
        results = [x.view(ctx.batch, -1, *x.shape[1:]) for x in grads[:3]]
        for grad, known in zip(grads[3:6], ctx.gates, strict=True):
            results.append(None if known is None else _gate_gradient(grad, *known))
        initial = None if ctx.initial_dtype is None else grads.initial.to(ctx.initial_dtype)
        return (*results, initial, None, None, None)


def _gate_gradient(grad: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Gradient of a gate from its channels' [tokens, H, width]: a gate per head gets their sum."""
    return (grad.sum(-1) if len(shape) == 3 else grad).view(shape).to(dtype)


def _pack(x: Tensor | None) -> Tensor | None:
    """[B, T, …] → [B·T, …], contiguous."""
    return None if x is None else x.reshape(-1, *x.shape[2:]).contiguous()


def _on(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Triton launches on the current device, which need not be that of the tensors."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _check_dtypes(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: tuple[Tensor | None, ...],
    initial_state: Tensor | None,
) -> None:
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(
            f"q, k and v must have one dtype, and have {q.dtype}, {k.dtype} and {v.dtype}"
        )
    if q.dtype not in OPERANDS:
        raise TypeError(f"q, k and v may be float32, float16 or bfloat16, not {q.dtype}")
    for extra in (*gates, initial_state):
        if extra is not None and not extra.dtype.is_floating_point:
            raise TypeError(f"gates and states must be floating, and one is {extra.dtype}")


def _check_tokens(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, int, int, int]:
    if q.dim() != 4 or q.shape != k.shape:
        raise ValueError(
            f"q and k must be [B, T, H, K] alike, and are {tuple(q.shape)} and {tuple(k.shape)}"
        )
    if v.dim() != 4 or v.shape[:3] != k.shape[:3]:
        raise ValueError(
            f"v must be [B, T, H, V] with B, T, H = {tuple(k.shape[:3])}, and is {tuple(v.shape)}"
        )
    if 0 in (*k.shape, *v.shape):
        raise ValueError(f"nothing to do for k {tuple(k.shape)} and v {tuple(v.shape)}")
    if max(k.shape[3], v.shape[3]) > WIDEST:
        raise ValueError(f"K and V may be at most {WIDEST}, not {k.shape[3]} and {v.shape[3]}")
    return tuple(k.shape)


def _check_borders(cu_seqlens: Tensor, batch: int, length: int) -> None:
    if batch != 1:
        raise ValueError(f"cu_seqlens packs sequences along T, with B = 1 and not {batch}")
    borders = cu_seqlens.tolist()
    ascending = all(low <= high for low, high in itertools.pairwise(borders))
    if len(borders) < 2 or borders[0] != 0 or borders[-1] != length or not ascending:
        raise ValueError(f"cu_seqlens must ascend from 0 to T = {length}")
