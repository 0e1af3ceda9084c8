"""Reference calls, honest variants and faults for the tests of the rounding model."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lethe_env.gates.decompositions import decomposition_of
from lethe_env.gates.perturbation import name_of

aten = torch.ops.aten
Function = Callable[..., Tensor]


@dataclass(frozen=True, kw_only=True)
class Case:
    function: Function
    inputs: Callable[[], list[Tensor]]
    median: float = 1e-5
    """Largest median bound in float32, relative to the truth's root mean square."""
    tf32: bool = False
    """Whether inputs cut to TF32 must go over the float32 bound."""
    half_totals: bool = False
    """Whether running totals rounded to float16 must go over the float32 bound."""
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float16, torch.bfloat16)


def normal(*shape: int, scale: float = 1.0, mean: float = 0.0) -> Tensor:
    return torch.randn(*shape) * scale + mean


def binades(count: int) -> Tensor:
    """Both signs, magnitudes log-uniform over 40 binades."""
    size = 2.0 ** (torch.rand(count) * 40 - 20)
    return size * torch.where(torch.rand(count) < 0.5, -1.0, 1.0)


def extremes() -> Tensor:
    edges = torch.tensor([1e-6, -1e-6, 1e6, -1e6, 0.0, 20.0, -20.0, 88.0, -88.0, -0.0])
    return torch.cat([edges, binades(5_000)])


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return torch.softmax(scores, -1) @ v


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def classes(logits: Tensor) -> Tensor:
    return torch.arange(logits.shape[0]) * 7 % logits.shape[1]


FLOAT32 = (torch.float32,)
REDUCING = {"tf32": True, "half_totals": True}

CASES = {
    "linear": Case(
        function=F.linear,
        inputs=lambda: [normal(16, 1024), normal(256, 1024, scale=1 / 32), normal(256)],
        median=1.5e-4,
        **REDUCING,
    ),
    "conv": Case(
        function=F.conv2d,
        inputs=lambda: [normal(2, 16, 20, 20), normal(32, 16, 3, 3, scale=1 / 12), normal(32)],
        median=3e-5,
        **REDUCING,
    ),
    "conv transposed": Case(
        function=lambda x, w: F.conv_transpose2d(x, w, stride=2),
        inputs=lambda: [normal(2, 8, 10, 10), normal(8, 6, 3, 3, scale=1 / 8)],
        median=3e-5,
        tf32=True,
        dtypes=FLOAT32,  # PyTorch's CPU kernel adds overlapping windows in the half type
    ),
    "softmax": Case(
        function=lambda x: F.softmax(x, -1),
        inputs=lambda: [normal(8, 4096, scale=3)],
        **REDUCING,
    ),
    "log softmax": Case(
        function=lambda x: F.log_softmax(x, -1),
        inputs=lambda: [normal(8, 4096, scale=3)],
        **REDUCING,
    ),
    "layer norm mean 100": Case(
        function=lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
        inputs=lambda: [normal(32, 512, mean=100), normal(512), normal(512)],
        median=1e-3,
        **REDUCING,
    ),
    "batch norm": Case(
        function=lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        inputs=lambda: [normal(4, 8, 16, 16), normal(8), normal(8)],
        dtypes=FLOAT32,  # PyTorch's CPU kernel rounds the batch's mean to the half type
        **REDUCING,
    ),
    "batch norm evaluated": Case(
        function=lambda x, m, v: F.batch_norm(x, m, v),
        inputs=lambda: [normal(4, 8, 16, 16), normal(8), torch.rand(8) + 0.5],
        tf32=True,
        dtypes=FLOAT32,  # the folded scale and shift are rounded to the half type
    ),
    "group norm": Case(
        function=lambda x: F.group_norm(x, 2),
        inputs=lambda: [normal(4, 8, 16, 16, mean=3)],
        median=3e-5,
        **REDUCING,
    ),
    "rms norm": Case(function=rms_norm, inputs=lambda: [normal(32, 512), normal(512)], **REDUCING),
    "logsumexp": Case(
        function=lambda x: torch.logsumexp(x, 1), inputs=lambda: [normal(64, 512)], **REDUCING
    ),
    "sum": Case(
        function=lambda x: x.sum(1), inputs=lambda: [normal(64, 1000)], median=2.5e-4, **REDUCING
    ),
    "mean": Case(
        function=lambda x: x.mean(1), inputs=lambda: [normal(64, 1000)], median=2.5e-4, **REDUCING
    ),
    "cumsum": Case(
        function=lambda x: x.cumsum(1), inputs=lambda: [normal(16, 1024)], median=3e-4, **REDUCING
    ),
    "variance": Case(
        function=lambda x: x.var(1), inputs=lambda: [normal(64, 512, mean=10)], **REDUCING
    ),
    "norm": Case(
        function=lambda x: torch.linalg.vector_norm(x, dim=1),
        inputs=lambda: [normal(64, 512)],
        **REDUCING,
    ),
    "attention": Case(
        function=attention,
        inputs=lambda: [normal(1, 1, 128, 64) for _ in range(3)],
        median=5e-5,
        **REDUCING,
    ),
    "sdpa": Case(
        function=F.scaled_dot_product_attention,
        inputs=lambda: [normal(1, 1, 128, 64) for _ in range(3)],
        median=5e-5,
        **REDUCING,
    ),
    "cross entropy": Case(
        function=lambda x: F.cross_entropy(x, classes(x), reduction="none"),
        inputs=lambda: [normal(64, 512, scale=3)],
        **REDUCING,
    ),
    "mse": Case(
        function=lambda x, y: F.mse_loss(x, y),
        inputs=lambda: [normal(64, 512), normal(64, 512)],
        median=1e-4,
        half_totals=True,
    ),
    "average pool": Case(
        function=lambda x: F.avg_pool2d(x, 3), inputs=lambda: [normal(2, 3, 30, 30)], tf32=True
    ),
    "max pool": Case(
        function=lambda x: F.max_pool2d(x, 3), inputs=lambda: [normal(2, 3, 30, 30)], tf32=True
    ),
    "interpolate": Case(
        function=lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        inputs=lambda: [normal(2, 3, 16, 16)],
        median=1e-4,
        tf32=True,
    ),
    **{
        name: Case(function=function, inputs=lambda: [normal(16, 512, scale=4)], tf32=True)
        for name, function in {
            "gelu": F.gelu,
            "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
            "silu": F.silu,
            "softplus": F.softplus,
            "elu": F.elu,
            "selu": F.selu,
            "mish": F.mish,
            "hardswish": F.hardswish,
            "log sigmoid": F.logsigmoid,
            "relu": F.relu,
        }.items()
    },
    "tanh": Case(function=torch.tanh, inputs=lambda: [extremes()], tf32=True),
    "sigmoid": Case(function=torch.sigmoid, inputs=lambda: [extremes()], tf32=True),
    "exp": Case(function=torch.exp, inputs=lambda: [normal(5_000, scale=5)], tf32=True),
    "expm1": Case(function=torch.expm1, inputs=lambda: [normal(5_000)], tf32=True),
    "log": Case(function=torch.log, inputs=lambda: [binades(5_000).abs()], tf32=True),
    "log1p": Case(function=torch.log1p, inputs=lambda: [binades(5_000).abs()], tf32=True),
    "pow": Case(
        function=lambda x: x.abs() ** 2.5 + x**3, inputs=lambda: [normal(5_000)], tf32=True
    ),
    "square root": Case(
        function=lambda x: x.sqrt() + x.rsqrt(), inputs=lambda: [normal(5_000).abs()], tf32=True
    ),
}


def cut_to_tf32(x: Tensor) -> Tensor:
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def rounded_to_half(x: Tensor) -> Tensor:
    return x.to(torch.float16).to(torch.float32)


def half_sum(terms: Tensor) -> Tensor:
    """Sum over the last dimension; the total is rounded to float16 after each 16 terms."""
    total = torch.zeros_like(terms[..., 0])
    for block in terms.split(16, -1):
        total = rounded_to_half(total + block.sum(-1))
    return total


def half_matmul(a: Tensor, b: Tensor) -> Tensor:
    total = torch.zeros(*a.shape[:-1], b.shape[-1])
    for left, right in zip(a.split(16, -1), b.split(16, -2), strict=True):
        total = rounded_to_half(total + left @ right)
    return total


def blocked_matmul(a: Tensor, b: Tensor, block: int) -> Tensor:
    total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=a.dtype)
    for left, right in zip(a.split(block, -1), b.split(block, -2), strict=True):
        total = total + left @ right
    return total


class HalfTotals(TorchDispatchMode):
    """A kernel whose running totals are float16: every reduction of a float32 call."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = name_of(func)
        if name in ("sum", "mean"):
            return self.total(args, kwargs, mean=name == "mean")
        if name in ("mm", "bmm"):
            return half_matmul(*args)
        if name == "addmm":
            return args[0] + half_matmul(*args[1:3])
        if name == "cumsum":
            return self.prefix(args[0], args[1])
        if name == "convolution":
            return self.convolution(*args)
        if name == "avg_pool2d":
            return self.window_mean(func, args, kwargs)
        decomposition = decomposition_of(func)
        if decomposition is None:
            return func(*args, **kwargs)
        with self:
            return decomposition(*args, **kwargs)

    @staticmethod
    def total(args, kwargs, mean: bool) -> Tensor:
        x = args[0]
        dims = args[1] if len(args) > 1 and args[1] else list(range(x.dim()))
        dims = [dim % x.dim() for dim in dims]
        keep = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
        terms = x.movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims))
        total = half_sum(terms) / (terms.shape[-1] if mean else 1)
        for dim in sorted(dims) if keep else ():
            total = total.unsqueeze(dim)
        return total

    @staticmethod
    def prefix(x: Tensor, dim: int) -> Tensor:
        carry = torch.zeros_like(x.narrow(dim, 0, 1))
        blocks = []
        for block in x.split(16, dim):
            blocks.append(carry + block.cumsum(dim))
            carry = rounded_to_half(blocks[-1].narrow(dim, -1, 1))
        return torch.cat(blocks, dim)

    @staticmethod
    def window_mean(func, args, kwargs) -> Tensor:
        """Windows of at most 16 terms: one total, rounded, then divided."""
        terms = math.prod(args[1])
        if terms > 16:
            raise ValueError(f"a window of {terms} terms needs more than one block")
        return rounded_to_half(func(*args, **kwargs) * terms) / terms

    @staticmethod
    def convolution(x, weight, bias, *geometry) -> Tensor:
        """Any convolution: at most 16 of its taps at a time, the total rounded after each."""
        taps = torch.arange(weight[0].numel()).reshape(weight.shape[1:])
        total = torch.zeros(())
        for block in taps.flatten().split(16):
            part = torch.where(torch.isin(taps, block), weight, 0.0)
            partial = torch.ops.aten.convolution.default(x, part, None, *geometry)
            total = rounded_to_half(total + partial)
        if bias is None:
            return total
        return total + bias.reshape(-1, *[1] * (weight.dim() - 2))
