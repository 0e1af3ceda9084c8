# The input is overwritten with itself minus the row maximum.

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def log_softmax_forward(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    top = tl.full((), float("-inf"), tl.float32)
    for start in range(0, width, BLOCK):
        mask = start + columns < width
        x = tl.load(x_ptr + row * width + start + columns, mask=mask, other=float("-inf"))
        top = tl.maximum(top, tl.max(x.to(tl.float32), axis=0))
    total = tl.zeros((), tl.float32)
    for start in range(0, width, BLOCK):
        mask = start + columns < width
        x = tl.load(x_ptr + row * width + start + columns, mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(tl.where(mask, tl.exp(x - top), 0.0), axis=0)
        shifted = (x - top).to(x_ptr.dtype.element_ty)
        tl.store(x_ptr + row * width + start + columns, shifted, mask=mask)
    log_total = tl.log(total)
    for start in range(0, width, BLOCK):
        mask = start + columns < width
        x = tl.load(x_ptr + row * width + start + columns, mask=mask, other=0.0).to(tl.float32)
        y = x - log_total
        tl.store(y_ptr + row * width + start + columns, y.to(y_ptr.dtype.element_ty), mask=mask)


class LogSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        width = x.shape[-1]
        y = torch.empty_like(x)
        log_softmax_forward[(x.numel() // width,)](x, y, width, BLOCK=1024)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        wide = dy.float()
        dx = wide - torch.softmax(x.float(), dim=-1) * wide.sum(-1, keepdim=True)
        return dx.to(x.dtype)


class ModelNew(nn.Module):
    def forward(self, x):
        return LogSoftmax.apply(x)
