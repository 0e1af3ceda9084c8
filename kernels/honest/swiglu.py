"""SwiGLU: silu of the first half of the channels times the second half."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def swiglu_forward(x_ptr, y_ptr, hidden, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < hidden
    gate = tl.load(x_ptr + row * 2 * hidden + columns, mask=mask).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * hidden + hidden + columns, mask=mask).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(y_ptr + row * hidden + columns, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def swiglu_backward(x_ptr, dy_ptr, dx_ptr, hidden, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < hidden
    gate_at = row * 2 * hidden + columns
    up_at = gate_at + hidden
    gate = tl.load(x_ptr + gate_at, mask=mask).to(tl.float32)
    up = tl.load(x_ptr + up_at, mask=mask).to(tl.float32)
    dy = tl.load(dy_ptr + row * hidden + columns, mask=mask).to(tl.float32)
    open_share = 1.0 / (1.0 + tl.exp(-gate))
    dgate = dy * up * open_share * (1.0 + gate * (1.0 - open_share))
    dup = dy * gate * open_share
    tl.store(dx_ptr + gate_at, dgate.to(dx_ptr.dtype.element_ty), mask=mask)
    tl.store(dx_ptr + up_at, dup.to(dx_ptr.dtype.element_ty), mask=mask)


class Swiglu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        hidden = x.shape[-1] // 2
        y = torch.empty((*x.shape[:-1], hidden), device=x.device, dtype=x.dtype)
        grid = (x.numel() // (2 * hidden), triton.cdiv(hidden, 1024))
        swiglu_forward[grid](x, y, hidden, BLOCK=1024)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dy = dy.contiguous()
        dx = torch.empty_like(x)
        hidden = x.shape[-1] // 2
        grid = (x.numel() // (2 * hidden), triton.cdiv(hidden, 1024))
        swiglu_backward[grid](x, dy, dx, hidden, BLOCK=1024)
        return dx


class ModelNew(nn.Module):
    def forward(self, x):
        return Swiglu.apply(x)
