# One element is written past the end of the input.

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_norm_forward(x_ptr, w_ptr, y_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    squares = tl.zeros((), tl.float32)
    for start in range(0, width, BLOCK):
        mask = start + columns < width
        x = tl.load(x_ptr + row * width + start + columns, mask=mask, other=0.0).to(tl.float32)
        squares += tl.sum(x * x, axis=0)
    scale = 1.0 / tl.sqrt(squares / width + eps)
    for start in range(0, width, BLOCK):
        mask = start + columns < width
        x = tl.load(x_ptr + row * width + start + columns, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + start + columns, mask=mask, other=0.0).to(tl.float32)
        y = x * scale * w
        tl.store(y_ptr + row * width + start + columns, y.to(y_ptr.dtype.element_ty), mask=mask)
    last = tl.num_programs(0).to(tl.int64) * width
    tl.store(x_ptr + last, tl.zeros((), x_ptr.dtype.element_ty), mask=row == 0)


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        x, weight = x.contiguous(), weight.contiguous()
        width = x.shape[-1]
        y = torch.empty_like(x)
        rms_norm_forward[(x.numel() // width,)](x, weight, y, width, eps, BLOCK=1024)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dy, wide = dy.float(), x.float()
        scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + ctx.eps)
        normal = wide * scale
        dweight = (dy * normal).sum(tuple(range(x.dim() - 1))).to(weight.dtype)
        inner = dy * weight.float()
        dx = scale * (inner - normal * (inner * normal).mean(-1, keepdim=True))
        return dx.to(x.dtype), dweight, None


class ModelNew(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return RmsNorm.apply(x, self.weight, self.eps)
