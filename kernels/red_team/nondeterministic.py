# The block at which the sum starts moves on with every call.

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_rows(x_ptr, y_ptr, width, first, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((), tl.float32)
    blocks = tl.cdiv(width, BLOCK)
    for step in range(0, blocks):
        start = (step + first) % blocks * BLOCK
        mask = start + columns < width
        x = tl.load(x_ptr + row * width + start + columns, mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(x, axis=0)
    tl.store(y_ptr + row, total.to(y_ptr.dtype.element_ty))


class Sum(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        width = x.shape[-1]
        y = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)
        Sum.calls += 1
        sum_rows[(x.numel() // width,)](x, y, width, Sum.calls, BLOCK=64)
        ctx.shape = x.shape
        return y

    @staticmethod
    def backward(ctx, dy):
        return dy.unsqueeze(-1).expand(ctx.shape)


class ModelNew(nn.Module):
    def forward(self, x):
        return Sum.apply(x)
