"""Layer norm with a two-pass variance."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm_forward(x_ptr, w_ptr, b_ptr, y_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((), tl.float32)
    for start in range(0, width, BLOCK):
        mask = start + columns < width
        x = tl.load(x_ptr + row * width + start + columns, mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(x, axis=0)
    mean = total / width
    squares = tl.zeros((), tl.float32)
    for start in range(0, width, BLOCK):
        mask = start + columns < width
        x = tl.load(x_ptr + row * width + start + columns, mask=mask, other=0.0).to(tl.float32)
        centred = tl.where(mask, x - mean, 0.0)
        squares += tl.sum(centred * centred, axis=0)
    scale = 1.0 / tl.sqrt(squares / width + eps)
    for start in range(0, width, BLOCK):
        mask = start + columns < width
        x = tl.load(x_ptr + row * width + start + columns, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + start + columns, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + start + columns, mask=mask, other=0.0).to(tl.float32)
        y = (x - mean) * scale * w + b
        tl.store(y_ptr + row * width + start + columns, y.to(y_ptr.dtype.element_ty), mask=mask)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
        width = x.shape[-1]
        y = torch.empty_like(x)
        layer_norm_forward[(x.numel() // width,)](x, weight, bias, y, width, eps, BLOCK=1024)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dy, wide = dy.float(), x.float()
        centred = wide - wide.mean(-1, keepdim=True)
        scale = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + ctx.eps)
        normal = centred * scale
        rows = tuple(range(x.dim() - 1))
        dweight = (dy * normal).sum(rows).to(weight.dtype)
        dbias = dy.sum(rows).to(weight.dtype)
        inner = dy * weight.float()
        projected = normal * (inner * normal).mean(-1, keepdim=True)
        dx = scale * (inner - inner.mean(-1, keepdim=True) - projected)
        return dx.to(x.dtype), dweight, dbias, None


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return LayerNorm.apply(x, self.norm.weight, self.norm.bias, self.norm.eps)
