"""Sum along rows."""

from __future__ import annotations

from .model import Choice, Problem, Sentence
from .parts import GRADIENT, HEADER, LAYOUT, TOTAL, contiguous, indent

COMBINE = Choice("combine", ("program", "atomic", "partials"))
"""One program walks the whole row; or one a block, which adds its part to the total atomically; or
one a block, which stores its part for a second kernel."""
TILE = Choice("tile", ("512", "1024"))

_PROGRAM = """
@triton.jit
def sum_kernel(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((), {kind})
    for start in range(0, width, BLOCK):
        columns = start + lanes
        x = tl.load(x_ptr + row * width + columns, mask=columns < width, other=0.0)
        total += tl.sum(x{cast}, axis=0)
    tl.store(y_ptr + row, total.to(y_ptr.dtype.element_ty))


def row_sum(x):
{contiguous}    width = x.shape[-1]
    y = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)
    sum_kernel[(y.numel(),)](x, y, width, BLOCK={tile})
    return y
"""

_BLOCKS = """
@triton.jit
def part_kernel(x_ptr, part_ptr, width, blocks, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + columns, mask=columns < width, other=0.0)
    part = tl.sum(x{cast}, axis=0)
{hand_over}{second}

def row_sum(x):
{contiguous}    width = x.shape[-1]
    rows = x.numel() // width
    blocks = triton.cdiv(width, {tile})
    {buffer}
    part_kernel[(rows, blocks)](x, part, width, blocks, BLOCK={tile})
{finish}"""

_SECOND = """

@triton.jit
def combine_kernel(part_ptr, y_ptr, blocks, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    part = tl.load(part_ptr + row * blocks + lanes, mask=lanes < blocks, other=0.0)
    tl.store(y_ptr + row, tl.sum(part, axis=0).to(y_ptr.dtype.element_ty))
"""

_FINISH = """\
    y = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)
    combine_kernel[(rows,)](part, y, blocks, BLOCK=triton.next_power_of_2(blocks))
    return y
"""

_FUNCTION = """

class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return row_sum(x)

    @staticmethod
    def backward(ctx, dy):
        return dy.unsqueeze(-1).expand(ctx.shape)


class ModelNew(nn.Module):
    def forward(self, x):
        return Sum.apply(x)
"""

_PLAIN = """

class ModelNew(nn.Module):
    def forward(self, x):
        return row_sum(x)
"""


def _template(sentence: Sentence) -> str:
    float32 = sentence["total"] == "float32"
    common = {
        "contiguous": contiguous(sentence),
        "tile": sentence["tile"],
        "cast": ".to(tl.float32)" if float32 else "",
    }
    if sentence["combine"] == "program":
        kind = "tl.float32" if float32 else "x_ptr.dtype.element_ty"
        source = _PROGRAM.format(kind=kind, **common)
    else:
        source = _BLOCKS.format(**_parts(sentence), **common)
    wrapper = _FUNCTION if sentence["gradient"] == "function" else _PLAIN
    return f"{HEADER}\n{source}{wrapper}"


def _parts(sentence: Sentence) -> dict[str, str]:
    """How the programs of one row bring their parts together."""
    dtype = "torch.float32" if sentence["total"] == "float32" else "x.dtype"
    if sentence["combine"] == "atomic":
        return {
            "hand_over": indent("tl.atomic_add(part_ptr + row, part)\n"),
            "second": "",
            "buffer": f"part = torch.zeros(x.shape[:-1], device=x.device, dtype={dtype})",
            "finish": "    return part.to(x.dtype)\n",
        }
    place = "part_ptr + row * blocks + tl.program_id(1)"
    return {
        "hand_over": indent(f"tl.store({place}, part)\n"),
        "second": _SECOND,
        "buffer": f"part = torch.empty((rows, blocks), device=x.device, dtype={dtype})",
        "finish": _FINISH,
    }


PROBLEM = Problem("reduction/sum", (LAYOUT, COMBINE, TILE, TOTAL, GRADIENT), _template)
