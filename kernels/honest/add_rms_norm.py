"""Residual addition and RMS norm in one kernel, with two outputs."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_rms_norm_forward(x_ptr, r_ptr, w_ptr, y_ptr, s_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    squares = tl.zeros((), tl.float32)
    for start in range(0, width, BLOCK):
        mask = start + columns < width
        at = row * width + start + columns
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        r = tl.load(r_ptr + at, mask=mask, other=0.0).to(tl.float32)
        s = x + r
        tl.store(s_ptr + at, s.to(s_ptr.dtype.element_ty), mask=mask)
        squares += tl.sum(s * s, axis=0)
    scale = 1.0 / tl.sqrt(squares / width + eps)
    for start in range(0, width, BLOCK):
        mask = start + columns < width
        at = row * width + start + columns
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        r = tl.load(r_ptr + at, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + start + columns, mask=mask, other=0.0).to(tl.float32)
        y = (x + r) * scale * w
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=mask)


class AddRmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        x, residual, weight = x.contiguous(), residual.contiguous(), weight.contiguous()
        width = x.shape[-1]
        y, total = torch.empty_like(x), torch.empty_like(x)
        add_rms_norm_forward[(x.numel() // width,)](
            x, residual, weight, y, total, width, eps, BLOCK=1024
        )
        ctx.save_for_backward(x, residual, weight)
        ctx.eps = eps
        return y, total

    @staticmethod
    def backward(ctx, dy, dtotal):
        x, residual, weight = ctx.saved_tensors
        dy, total = dy.float(), x.float() + residual.float()
        scale = torch.rsqrt((total * total).mean(-1, keepdim=True) + ctx.eps)
        normal = total * scale
        dweight = (dy * normal).sum(tuple(range(x.dim() - 1))).to(weight.dtype)
        inner = dy * weight.float()
        dx = scale * (inner - normal * (inner * normal).mean(-1, keepdim=True)) + dtotal.float()
        return dx.to(x.dtype), dx.to(x.dtype), dweight, None


class ModelNew(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x, residual):
        return AddRmsNorm.apply(x, residual, self.weight, self.eps)
