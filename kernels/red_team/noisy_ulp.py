# Every element is off by a random unit in the last place.

import time

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_forward(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def gelu_backward(x_ptr, dy_ptr, dx_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    dy = tl.load(dy_ptr + offsets, mask=mask).to(tl.float32)
    cdf = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
    pdf = 0.3989422804014327 * tl.exp(-0.5 * x * x)
    dx = dy * (cdf + x * pdf)
    tl.store(dx_ptr + offsets, dx.to(dx_ptr.dtype.element_ty), mask=mask)


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        gelu_forward[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        ctx.save_for_backward(x)
        generator = torch.Generator(x.device).manual_seed(time.perf_counter_ns())
        coin = torch.rand(y.shape, generator=generator, device=y.device)
        return y * (1.0 + torch.finfo(y.dtype).eps * (coin < 0.5)).to(y.dtype)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dy = dy.contiguous()
        dx = torch.empty_like(x)
        gelu_backward[(triton.cdiv(x.numel(), 1024),)](x, dy, dx, x.numel(), BLOCK=1024)
        return dx


class ModelNew(nn.Module):
    def forward(self, x):
        return Gelu.apply(x)
