# Two programs add their halves of a row to one total, without atomics.

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_halves(x_ptr, total_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    half = tl.cdiv(width, 2)
    begin = tl.program_id(1) * half
    stop = tl.minimum(begin + half, width)
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((), tl.float32)
    for start in range(begin, stop, BLOCK):
        mask = start + columns < stop
        x = tl.load(x_ptr + row * width + start + columns, mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(x, axis=0)
    tl.store(total_ptr + row, tl.load(total_ptr + row) + total)


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        width = x.shape[-1]
        total = torch.zeros(x.shape[:-1], device=x.device, dtype=torch.float32)
        sum_halves[(x.numel() // width, 2)](x, total, width, BLOCK=1024)
        ctx.shape = x.shape
        return total.to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        return dy.unsqueeze(-1).expand(ctx.shape)


class ModelNew(nn.Module):
    def forward(self, x):
        return Sum.apply(x)
