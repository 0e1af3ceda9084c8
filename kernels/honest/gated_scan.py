"""Gated linear recurrence h[t] = a[t] * h[t-1] + b[t], serial in time and parallel in channels."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_forward(a_ptr, b_ptr, h_ptr, length, channels, BLOCK: tl.constexpr):
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = channel < channels
    at = tl.program_id(0).to(tl.int64) * length * channels + channel
    state = tl.zeros((BLOCK,), tl.float32)
    for _ in range(length):
        a = tl.load(a_ptr + at, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + at, mask=mask, other=0.0).to(tl.float32)
        state = a * state + b
        tl.store(h_ptr + at, state.to(h_ptr.dtype.element_ty), mask=mask)
        at += channels


@triton.jit
def scan_backward(a_ptr, h_ptr, dh_ptr, da_ptr, db_ptr, length, channels, BLOCK: tl.constexpr):
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = channel < channels
    first = tl.program_id(0).to(tl.int64) * length * channels + channel
    at = first + (length - 1).to(tl.int64) * channels
    carried = tl.zeros((BLOCK,), tl.float32)
    for step in range(length):
        a = tl.load(a_ptr + at, mask=mask, other=0.0).to(tl.float32)
        dh = tl.load(dh_ptr + at, mask=mask, other=0.0).to(tl.float32)
        earlier = mask & (step + 1 < length)
        before = tl.load(h_ptr + at - channels, mask=earlier, other=0.0).to(tl.float32)
        grad = dh + carried
        tl.store(da_ptr + at, (grad * before).to(da_ptr.dtype.element_ty), mask=mask)
        tl.store(db_ptr + at, grad.to(db_ptr.dtype.element_ty), mask=mask)
        carried = grad * a
        at -= channels


class GatedScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        a, b = a.contiguous(), b.contiguous()
        batch, length, channels = a.shape
        h = torch.empty_like(a, dtype=torch.float32)
        scan_forward[(batch, triton.cdiv(channels, 64))](a, b, h, length, channels, BLOCK=64)
        ctx.save_for_backward(a, h)
        return h.to(a.dtype)

    @staticmethod
    def backward(ctx, dh):
        a, h = ctx.saved_tensors
        dh = dh.contiguous()
        batch, length, channels = a.shape
        da, db = torch.empty_like(a), torch.empty_like(a)
        scan_backward[(batch, triton.cdiv(channels, 64))](
            a, h, dh, da, db, length, channels, BLOCK=64
        )
        return da, db


class ModelNew(nn.Module):
    def forward(self, a, b):
        return GatedScan.apply(a, b)
