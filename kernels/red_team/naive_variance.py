# One pass: the mean of squares minus the square of the mean.

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def variance_rows(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((), tl.float32)
    squares = tl.zeros((), tl.float32)
    for start in range(0, width, BLOCK):
        mask = start + columns < width
        x = tl.load(x_ptr + row * width + start + columns, mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(x, axis=0)
        squares += tl.sum(x * x, axis=0)
    spread = tl.maximum(squares - total * total / width, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + row, (spread / (width - 1)).to(y_ptr.dtype.element_ty))


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
