"""Softmax along rows."""

from __future__ import annotations

from .model import Choice, Problem, Sentence
from .parts import (
    GRADIENT,
    HEADER,
    LAYOUT,
    ROW,
    TOTAL,
    contiguous,
    indent,
    loops,
    row_block,
    sweep,
)

SHIFT = Choice("shift", ("maximum", "none"))
"""Subtract the row's maximum before the exponential, or trust that nothing overflows."""
WARPS = Choice("warps", ("4", "8"))

_SOURCE = """
@triton.jit
def softmax_kernel(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    lanes = tl.arange(0, BLOCK)
{body}

def softmax(x):
{contiguous}    width = x.shape[-1]
    y = torch.empty_like(x)
    softmax_kernel[(x.numel() // width,)](
        x, y, width, BLOCK={block}, num_warps={warps}
    )
    return y
"""

_FUNCTION = """

class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (saved,) = ctx.saved_tensors
        y, wide = saved.float(), dy.float()
        return (y * (wide - (y * wide).sum(-1, keepdim=True))).to(dy.dtype)


class ModelNew(nn.Module):
    def forward(self, x):
        return Softmax.apply(x)
"""

_PLAIN = """

class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)
"""

_LOAD = "x = tl.load(x_ptr + row + columns, mask=mask, other=float('-inf')).to(tl.float32)\n"
_STORE = "tl.store(y_ptr + row + columns, y.to(y_ptr.dtype.element_ty), mask=mask)\n"


def _body(sentence: Sentence) -> str:
    shifted = "x - top" if sentence["shift"] == "maximum" else "x"
    narrow = "" if sentence["total"] == "float32" else ".to(x_ptr.dtype.element_ty)"
    total_type = "tl.float32" if sentence["total"] == "float32" else "x_ptr.dtype.element_ty"
    if not loops(sentence):
        maximum = "top = tl.max(x, axis=0)\n" if sentence["shift"] == "maximum" else ""
        return sweep(
            sentence,
            f"{_LOAD}{maximum}terms = tl.exp({shifted})\n"
            f"total = tl.sum(terms{narrow}, axis=0)\ny = terms / total\n{_STORE}",
        )
    first = ""
    if sentence["shift"] == "maximum":
        step = f"{_LOAD}top = tl.maximum(top, tl.max(x, axis=0))\n"
        first = "top = tl.full((), float('-inf'), tl.float32)\n" + sweep(sentence, step)
    add = f"{_LOAD}total += tl.sum(tl.exp({shifted}){narrow}, axis=0)\n"
    second = f"total = tl.zeros((), {total_type})\n" + sweep(sentence, add)
    third = sweep(sentence, f"{_LOAD}y = tl.exp({shifted}) / total\n{_STORE}")
    return first + second + third


def _template(sentence: Sentence) -> str:
    source = _SOURCE.format(
        body=indent(_body(sentence)),
        contiguous=contiguous(sentence),
        block=row_block(sentence),
        warps=sentence["warps"],
    )
    wrapper = _FUNCTION if sentence["gradient"] == "function" else _PLAIN
    return f"{HEADER}\n{source}{wrapper}"


PROBLEM = Problem("softmax/softmax", (LAYOUT, ROW, SHIFT, TOTAL, WARPS, GRADIENT), _template)
