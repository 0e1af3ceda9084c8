"""Root-mean-square norm and layer norm along rows."""

from __future__ import annotations

from .model import Choice, Problem, Sentence
from .parts import HEADER, LAYOUT, ROW, TOTAL, contiguous, indent, loops, row_block, sweep

VARIANCE = Choice("variance", ("two_pass", "one_pass"))
"""Subtract the mean before squaring, or take the mean of squares less the squared mean."""
EPSILON = Choice("epsilon", ("inside", "outside"))
"""Add it under the root, or to the root."""
GRADIENT = Choice("gradient", ("recompute", "save", "none"))
"""The backward pass computes the statistics again, or reads what the forward pass has saved, or
there is none."""

_SOURCE = """
@triton.jit
def norm_kernel({pointers}, width, eps, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    row = program * width
    lanes = tl.arange(0, BLOCK)
{body}

def norm({tensors}, eps):
{contiguous}    width = x.shape[-1]
    y = torch.empty_like(x)
{statistics}    norm_kernel[(x.numel() // width,)](
        {arguments}, width, eps, BLOCK={block}
    )
    return {result}
"""

_LOAD = "x = tl.load(x_ptr + row + columns, mask=mask, other=0.0){cast}\n"
_WEIGHT = "w = tl.load(w_ptr + columns, mask=mask, other=0.0).to(tl.float32)\n"
_BIAS = "b = tl.load(b_ptr + columns, mask=mask, other=0.0).to(tl.float32)\n"
_STORE = "tl.store(y_ptr + row + columns, y.to(y_ptr.dtype.element_ty), mask=mask)\n"

_RMS_FUNCTION = """

class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
{forward}        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
{restore}        wide = x.float()
        normal = wide * scale
        dweight = (dy.float() * normal).sum(tuple(range(x.dim() - 1)))
        inner = dy.float() * weight.float()
        dx = scale * (inner - normal * (inner * normal).mean(-1, keepdim=True))
        return dx.to(x.dtype), dweight.to(weight.dtype), None


class ModelNew(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return Norm.apply(x, self.weight, self.eps)
"""

_RMS_PLAIN = """

class ModelNew(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return norm(x, self.weight, self.eps)
"""

_LAYER_FUNCTION = """

class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
{forward}        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
{restore}        wide = x.float()
        normal = (wide - mean) * scale
        rows = tuple(range(x.dim() - 1))
        dweight = (dy.float() * normal).sum(rows)
        dbias = dy.float().sum(rows)
        inner = dy.float() * weight.float()
        projected = normal * (inner * normal).mean(-1, keepdim=True)
        dx = scale * (inner - inner.mean(-1, keepdim=True) - projected)
        return dx.to(x.dtype), dweight.to(weight.dtype), dbias.to(weight.dtype), None


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return Norm.apply(x, self.norm.weight, self.norm.bias, self.norm.eps)
"""

_LAYER_PLAIN = """

class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return norm(x, self.norm.weight, self.norm.bias, self.norm.eps)
"""


def _load(sentence: Sentence) -> str:
    return _LOAD.format(cast=".to(tl.float32)" if sentence["total"] == "float32" else "")


def _sum(sentence: Sentence, name: str, term: str) -> str:
    """Statements that add up `term` over the row, in the type that the author chose."""
    float32 = sentence["total"] == "float32"
    add = f"{_load(sentence)}{name} += tl.sum({term}, axis=0)\n"
    if not loops(sentence):
        return sweep(sentence, add.replace("+=", "="))
    kind = "tl.float32" if float32 else "x_ptr.dtype.element_ty"
    return f"{name} = tl.zeros((), {kind})\n" + sweep(sentence, add)


def _scale(sentence: Sentence, mean_square: str) -> str:
    if sentence.get("epsilon", "inside") == "inside":
        return f"scale = 1.0 / tl.sqrt({mean_square} + eps)\n"
    return f"scale = 1.0 / (tl.sqrt({mean_square}) + eps)\n"


def _rms_body(sentence: Sentence) -> str:
    squares = _sum(sentence, "squares", "x * x")
    scale = _scale(sentence, "squares.to(tl.float32) / width")
    save = "tl.store(scale_ptr + program, scale)\n" if sentence["gradient"] == "save" else ""
    write = sweep(sentence, f"{_load(sentence)}{_WEIGHT}y = x * scale * w\n{_STORE}")
    return squares + scale + save + write


def _layer_body(sentence: Sentence) -> str:
    mean = _sum(sentence, "total", "x") + "mean = total.to(tl.float32) / width\n"
    if sentence["variance"] == "two_pass":
        squares = _sum(sentence, "squares", "tl.where(mask, (x - mean) * (x - mean), 0.0)")
        variance = squares + "variance = squares.to(tl.float32) / width\n"
    else:
        squares = _sum(sentence, "squares", "x * x")
        variance = squares + "variance = squares.to(tl.float32) / width - mean * mean\n"
    save = ""
    if sentence["gradient"] == "save":
        save = "tl.store(mean_ptr + program, mean)\ntl.store(scale_ptr + program, scale)\n"
    formula = "y = (x - mean) * scale * w + b\n"
    write = sweep(sentence, f"{_load(sentence)}{_WEIGHT}{_BIAS}{formula}{_STORE}")
    return mean + variance + _scale(sentence, "variance") + save + write


def _source(sentence: Sentence, body: str, inputs: tuple[str, ...], saved: tuple[str, ...]) -> str:
    """The kernel and its launch.

    Args:
        sentence: takes `layout`, `row` and `gradient`.
        body: the kernel's statements.
        inputs: names of the input tensors.
        saved: names of the statistics, one float32 number a row.
    """
    kept = saved if sentence["gradient"] == "save" else ()
    short = {"weight": "w", "bias": "b"}
    pointers = [f"{short.get(name, name)}_ptr" for name in (*inputs, "y", *kept)]
    empty = "torch.empty((*x.shape[:-1], 1), device=x.device, dtype=torch.float32)"
    return _SOURCE.format(
        pointers=", ".join(pointers),
        body=indent(body),
        tensors=", ".join(inputs),
        contiguous="".join(contiguous(sentence, name) for name in inputs),
        statistics="".join(f"    {name} = {empty}\n" for name in kept),
        arguments=", ".join((*inputs, "y", *kept)),
        block=row_block(sentence),
        result=", ".join(("y", *kept)),
    )


def _keeping(sentence: Sentence, inputs: tuple[str, ...], saved: tuple[str, ...]) -> dict[str, str]:
    """What the forward pass keeps for the backward pass, and how that gets it back."""
    kept = saved if sentence["gradient"] == "save" else ()
    call = f"{', '.join(('y', *kept))} = norm({', '.join(inputs)}, eps)\n"
    store = ", ".join(("x", "weight", *kept))
    restore = f"{store} = ctx.saved_tensors\n"
    if not kept:
        centred = "x.float()"
        if "mean" in saved:
            restore += "mean = x.float().mean(-1, keepdim=True)\n"
            centred = "(x.float() - mean)"
        mean_square = f"{centred}.square().mean(-1, keepdim=True)"
        restore += f"scale = torch.rsqrt({mean_square} + ctx.eps)\n"
    forward = f"{call}ctx.save_for_backward({store})\n"
    return {"forward": indent(forward, 2), "restore": indent(restore, 2)}


def _rms_norm(sentence: Sentence) -> str:
    inputs, saved = ("x", "weight"), ("scale",)
    source = _source(sentence, _rms_body(sentence), inputs, saved)
    if sentence["gradient"] == "none":
        return f"{HEADER}\n{source}{_RMS_PLAIN}"
    return f"{HEADER}\n{source}{_RMS_FUNCTION.format(**_keeping(sentence, inputs, saved))}"


def _layer_norm(sentence: Sentence) -> str:
    inputs, saved = ("x", "weight", "bias"), ("mean", "scale")
    source = _source(sentence, _layer_body(sentence), inputs, saved)
    if sentence["gradient"] == "none":
        return f"{HEADER}\n{source}{_LAYER_PLAIN}"
    return f"{HEADER}\n{source}{_LAYER_FUNCTION.format(**_keeping(sentence, inputs, saved))}"


PROBLEMS = (
    Problem("norm/rms_norm", (LAYOUT, ROW, TOTAL, EPSILON, GRADIENT), _rms_norm),
    Problem("norm/layer_norm", (LAYOUT, ROW, TOTAL, VARIANCE, GRADIENT), _layer_norm),
)
