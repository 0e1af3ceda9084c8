"""Unbiased variance over the last dimension, in two passes."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def variance_rows(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
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
    tl.store(y_ptr + row, (squares / (width - 1)).to(y_ptr.dtype.element_ty))


class Variance(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        width = x.shape[-1]
        y = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)
        variance_rows[(x.numel() // width,)](x, y, width, BLOCK=1024)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        wide = x.float()
        centred = wide - wide.mean(-1, keepdim=True)
        return (centred * (2.0 * dy.float() / (x.shape[-1] - 1)).unsqueeze(-1)).to(x.dtype)


class ModelNew(nn.Module):
    def forward(self, x):
        return Variance.apply(x)
