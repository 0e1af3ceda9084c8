"""Causal attention with an online softmax that skips the key blocks behind the mask.

What is skipped has weight zero. A NaN value there never reaches the row, as it would in the
product that the mask describes; both conventions are in use.
"""

import math

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_rows(
    q_ptr, k_ptr, v_ptr, y_ptr, length, width, scale, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64) * length
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lanes = tl.arange(0, WIDTH)
    row_mask = (rows[:, None] < length) & (lanes[None, :] < width)
    row_at = (head + rows[:, None]) * width + lanes[None, :]
    q = tl.load(q_ptr + row_at, mask=row_mask, other=0.0).to(tl.float32)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    mixed = tl.zeros((BLOCK, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BLOCK, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        key_mask = (keys[:, None] < length) & (lanes[None, :] < width)
        key_at = (head + keys[:, None]) * width + lanes[None, :]
        k = tl.load(k_ptr + key_at, mask=key_mask, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + key_at, mask=key_mask, other=0.0).to(tl.float32)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = (keys[None, :] <= rows[:, None]) & (keys[None, :] < length)
        scores = tl.where(seen, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp(scores - shift[:, None])
        decay = tl.exp(top - shift)
        total = total * decay + tl.sum(weights, axis=1)
        mixed = mixed * decay[:, None] + tl.dot(weights, v, input_precision="ieee")
        top = new_top
    y = mixed / total[:, None]
    tl.store(y_ptr + row_at, y.to(y_ptr.dtype.element_ty), mask=row_mask)


class CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        length, width = q.shape[-2:]
        y = torch.empty_like(q)
        grid = (triton.cdiv(length, 64), q.numel() // (length * width))
        attention_rows[grid](
            q,
            k,
            v,
            y,
            length,
            width,
            1.0 / math.sqrt(width),
            BLOCK=64,
            WIDTH=max(16, triton.next_power_of_2(width)),
        )
        ctx.save_for_backward(q, k, v)
        return y

    @staticmethod
    def backward(ctx, dy):
        q, k, v = (tensor.float() for tensor in ctx.saved_tensors)
        dy, scale, length = dy.float(), 1.0 / math.sqrt(q.shape[-1]), q.shape[-2]
        future = torch.ones(length, length, device=q.device, dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-1, -2) * scale).masked_fill(future, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        dv = weights.transpose(-1, -2) @ dy
        dweights = dy @ v.transpose(-1, -2)
        dscores = weights * (dweights - (weights * dweights).sum(-1, keepdim=True)) * scale
        dq, dk = dscores @ k, dscores.transpose(-1, -2) @ q
        return tuple(grad.to(ctx.saved_tensors[0].dtype) for grad in (dq, dk, dv))


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return CausalAttention.apply(q, k, v)
