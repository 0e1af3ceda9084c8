"""Max pooling over 3 by 3 windows with stride 2 and padding 1; NaN wins."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def max_pool_windows(
    x_ptr,
    y_ptr,
    count,
    height,
    width,
    out_height,
    out_width,
    SIZE: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    column = offsets % out_width
    row = (offsets // out_width) % out_height
    plane = offsets // (out_width * out_height)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for i in tl.static_range(SIZE):
        for j in tl.static_range(SIZE):
            h = row * STRIDE - PADDING + i
            w = column * STRIDE - PADDING + j
            inside = mask & (h >= 0) & (h < height) & (w >= 0) & (w < width)
            at = (plane * height + h) * width + w
            x = tl.load(x_ptr + at, mask=inside, other=float("-inf")).to(tl.float32)
            # Once best is NaN no comparison replaces it by a number.
            best = tl.where((x > best) | (x != x), x, best)
    tl.store(y_ptr + offsets, best.to(y_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        *planes, height, width = x.shape
        out_height, out_width = (height - 1) // 2 + 1, (width - 1) // 2 + 1
        y = torch.empty((*planes, out_height, out_width), device=x.device, dtype=x.dtype)
        max_pool_windows[(triton.cdiv(y.numel(), 1024),)](
            x,
            y,
            y.numel(),
            height,
            width,
            out_height,
            out_width,
            SIZE=3,
            STRIDE=2,
            PADDING=1,
            BLOCK=1024,
        )
        return y
