"""Elementwise problems: one formula on every element."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from .model import Choice, Problem, Sentence
from .parts import GRADIENT, HEADER, LAYOUT, contiguous

TAIL = Choice("tail", ("masked", "unmasked_load"))
"""Mask the load and the store of the last block, or the store alone."""
TILE = Choice("tile", ("1024", "4096"))
UPCAST = Choice("upcast", ("yes", "no"))
"""Compute in float32, or in whatever type the input has."""

_SOURCE = """
@triton.jit
def activation_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets{load_mask}){cast}
    y = {formula}
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def activation(x):
{contiguous}    y = torch.empty_like(x)
    count = x.numel()
    activation_kernel[(triton.cdiv(count, {tile}),)](x, y, count, BLOCK={tile})
    return y
"""

_FUNCTION = """

class Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return activation(x)

    @staticmethod
    def backward(ctx, dy):
        (saved,) = ctx.saved_tensors
        x, wide = saved.float(), dy.float()
        return ({gradient}).to(dy.dtype)


class ModelNew(nn.Module):
    def forward(self, x):
        return Activation.apply(x)
"""

_PLAIN = """

class ModelNew(nn.Module):
    def forward(self, x):
        return activation(x)
"""


@dataclass(frozen=True, slots=True)
class Formula:
    """How one function may be written, and its gradient."""

    choice: Choice
    """Which of the ways is taken."""
    ways: dict[str, str]
    """Option to an expression in `x`."""
    gradient: str
    """An expression in `x` and `wide`, the incoming gradient, both float32 tensors."""


def _template(formula: Formula, sentence: Sentence) -> str:
    source = _SOURCE.format(
        load_mask=", mask=mask" if sentence["tail"] == "masked" else "",
        cast=".to(tl.float32)" if sentence.get("upcast", "yes") == "yes" else "",
        formula=formula.ways[sentence[formula.choice.name]],
        contiguous=contiguous(sentence),
        tile=sentence["tile"],
    )
    if sentence["gradient"] == "none":
        return f"{HEADER}\n{source}{_PLAIN}"
    return f"{HEADER}\n{source}{_FUNCTION.format(gradient=formula.gradient)}"


_RELU = Formula(
    choice=Choice("negative", ("select", "maximum", "maximum_nan")),
    ways={
        "select": "tl.where(x < 0.0, 0.0, x)",
        "maximum": "tl.maximum(x, 0.0)",
        "maximum_nan": "tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)",
    },
    gradient="torch.where(x <= 0, 0.0, wide)",
)
_GELU = Formula(
    choice=Choice("formula", ("erf", "tanh", "sigmoid")),
    ways={
        "erf": "0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))",
        "tanh": "x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))",
        "sigmoid": "x * tl.sigmoid(1.702 * x)",
    },
    gradient="torch.ops.aten.gelu_backward(wide, x)",
)
_SILU = Formula(
    choice=Choice("formula", ("quotient", "product", "exponential")),
    ways={
        "quotient": "x / (1.0 + tl.exp(-x))",
        "product": "x * tl.sigmoid(x)",
        "exponential": "x * tl.exp(x) / (1.0 + tl.exp(x))",
    },
    gradient="torch.ops.aten.silu_backward(wide, x)",
)


def _problem(task: str, formula: Formula, *more: Choice) -> Problem:
    choices = (LAYOUT, TAIL, TILE, *more, formula.choice, GRADIENT)
    return Problem(task, choices, partial(_template, formula))


PROBLEMS = (
    _problem("elementwise/relu", _RELU),
    _problem("elementwise/gelu", _GELU, UPCAST),
    _problem("elementwise/silu", _SILU, UPCAST),
)
