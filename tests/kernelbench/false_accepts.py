"""Wrong kernels that KernelBench accepts, each with the problem that lets it through.

Most are about inputs: all of level 1 draws from [0, 1), so that a negative branch, a clamp or a
stabilisation is never exercised. The others need several calls, or a loose tolerance.
"""

from __future__ import annotations

from .conftest import candidate, problem

TWO = "[torch.rand(rows, width), torch.rand(rows, width)]"


def case(reference: str, wrong: str, **options):
    """A case from two expressions in `x`, or in what `arguments` names."""
    shared = {key: options.pop(key) for key in ("arguments",) if key in options}
    made = {key: options.pop(key) for key in ("inputs", "sizes", "init") if key in options}
    own = {"init": options.pop("own_init")} if "own_init" in options else {}
    block = wrong if "return" in wrong else f"return {wrong}"
    return {
        "problem": problem(f"return {reference}", **made, **shared),
        "candidate": candidate(block, head=options.pop("head", ""), **own, **shared),
        **options,
    }


INPUTS = {
    "relu is the identity": case("torch.relu(x)", "x.clone()"),
    "leaky relu is the identity": case("F.leaky_relu(x, 0.01)", "x.clone()"),
    "elu is the identity": case("F.elu(x)", "x.clone()"),
    "hardtanh is the identity": case("F.hardtanh(x)", "x.clone()"),
    "selu is a factor": case("torch.selu(x)", "x * 1.0507009873554805"),
    "hardsigmoid without its clamp": case("F.hardsigmoid(x)", "x / 6 + 0.5"),
    "softsign without its absolute value": case("x / (1 + torch.abs(x))", "x / (1 + x)"),
    "l1 norm without its absolute value": case(
        "x / torch.mean(torch.abs(x), dim=1, keepdim=True)", "x / x.mean(dim=1, keepdim=True)"
    ),
    "softmax without its maximum": case(
        "torch.softmax(x, dim=1)", "torch.exp(x) / torch.exp(x).sum(dim=1, keepdim=True)"
    ),
    "log softmax without its maximum": case(
        "torch.log_softmax(x, dim=1)", "x - torch.log(torch.exp(x).sum(dim=1, keepdim=True))"
    ),
    "max pooling padded with zeros": case(
        "F.max_pool1d(x, 3, 2, 1)",
        "F.max_pool1d(F.pad(x, (1, 1)), 3, 2)",
        inputs="[torch.rand(rows, 3, width)]",
    ),
    "huber is half the squared error": case(
        "F.smooth_l1_loss(x, y)",
        "0.5 * ((x - y) ** 2).mean()",
        inputs=TWO,
        arguments="x, y",
    ),
    "hinge without its clamp": case(
        "torch.mean(torch.clamp(1 - x * y, min=0))",
        "torch.mean(1 - x * y)",
        inputs="[torch.rand(rows, width), torch.randint(0, 2, (rows, 1)).float() * 2 - 1]",
        arguments="x, y",
    ),
    "triplet margin without its clamp": case(
        "F.triplet_margin_loss(x, y, z, margin=1.0)",
        "((x - y).norm(dim=1) - (x - z).norm(dim=1) + 1.0).mean()",
        inputs="[torch.rand(rows, width) * 0.1 for _ in range(3)]",
        sizes="rows, width = 64, 96",
        arguments="x, y, z",
        tolerance=1e-2,
    ),
    "cumprod of the first columns": case(
        "torch.cumprod(x, dim=1)",
        "return F.pad(torch.cumprod(x[:, :32], dim=1), (0, x.shape[1] - 32))",
        sizes="rows, width = 4, 256",
    ),
    "squared error of an eighth of the rows": case(
        "torch.mean((x - y) ** 2)",
        "torch.mean((x[: len(x) // 8] - y[: len(y) // 8]) ** 2)",
        inputs=TWO,
        sizes="rows, width = 64, 1024",
        arguments="x, y",
        tolerance=1e-2,
    ),
}
"""Never shown what they do wrong."""

MAGNITUDES = {
    "softmax is zero": case(
        "torch.softmax(x, dim=1)", "torch.zeros_like(x)", sizes="rows, width = 4, 32768"
    ),
    "l2 norm is zero": case(
        "x / torch.norm(x, p=2, dim=1, keepdim=True)",
        "torch.zeros_like(x)",
        sizes="rows, width = 2, 49152",
        precision="bfloat16",
    ),
    "minimum is zero": case(
        "torch.min(x, dim=1)[0]",
        "torch.zeros_like(x[:, 0])",
        inputs="[torch.rand(rows, width, 8)]",
        sizes="rows, width = 4, 2048",
        precision="bfloat16",
    ),
    "maximum is one": case(
        "torch.max(x, dim=1)[0]",
        "torch.ones_like(x[:, 0])",
        inputs="[torch.rand(rows, width, 8)]",
        sizes="rows, width = 4, 2048",
        precision="bfloat16",
    ),
    "attention is the mean of the values": case(
        "F.scaled_dot_product_attention(q, k, v)",
        "v.mean(dim=-2, keepdim=True).expand(v.shape).contiguous()",
        inputs="[torch.rand(1, rows, length, width) for _ in range(3)]",
        sizes="rows, length, width = 2, 1024, 64",
        arguments="q, k, v",
        precision="bfloat16",
    ),
    "argmax a few places off": case(
        "torch.argmax(x, dim=1)",
        "i = torch.argmax(x, dim=1)\nreturn (i + i // 150).clamp(max=x.shape[1] - 1)",
        sizes="rows, width = 4, 4096",
        precision="bfloat16",
    ),
    "mean of a group norm is zero": case(
        "self.norm(x).mean(dim=[1, 2])",
        "torch.zeros_like(x[:, 0, 0])",
        inputs="[torch.rand(rows, 8, width)]",
        init="self.norm = nn.GroupNorm(4, 8)",
        own_init="self.norm = nn.GroupNorm(4, 8)",
    ),
    "product of rounded factors": case(
        "torch.matmul(x, y)",
        "torch.matmul(x.half().float(), y.half().float())",
        inputs="[torch.rand(rows, width), torch.rand(width, rows)]",
        sizes="rows, width = 16, 2048",
        arguments="x, y",
    ),
    "product under autocast": case(
        "torch.matmul(x, y)",
        "torch.matmul(x.bfloat16(), y.bfloat16()).float()",
        inputs="[torch.rand(rows, width), torch.rand(width, rows)]",
        sizes="rows, width = 16, 2048",
        arguments="x, y",
        tolerance=1e-2,
    ),
    "erf is tanh": case("F.gelu(x, approximate='tanh')", "F.gelu(x)", tolerance=1e-2),
    "layer norm with the unbiased deviation": case(
        "self.norm(x)",
        "(x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True) * self.norm.weight + "
        "self.norm.bias",
        sizes="rows, width = 4, 8192",
        init="self.norm = nn.LayerNorm(width)",
        own_init="self.norm = nn.LayerNorm(8192)",
    ),
    "rms norm without its epsilon": case(
        "x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)",
        "x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True))",
        tolerance=1e-2,
    ),
}
"""Small or large enough for the tolerance."""

WEIGHTS = {
    "layer norm without its weights": case(
        "self.norm(x)",
        "F.layer_norm(x, x.shape[1:])",
        init="self.norm = nn.LayerNorm(width)",
    ),
    "batch norm without its weights": case(
        "self.norm(x)",
        "F.batch_norm(x, None, None, training=True)",
        inputs="[torch.rand(rows, 8, width)]",
        init="self.norm = nn.BatchNorm1d(8)",
    ),
    "group norm without its weights": case(
        "self.norm(x)",
        "F.group_norm(x, 4)",
        inputs="[torch.rand(rows, 8, width)]",
        init="self.norm = nn.GroupNorm(4, 8)",
    ),
}
"""Constant as the constructor leaves them."""

_STALE = """
self.calls += 1
if self.calls <= 5:
    self.last = torch.relu(x) * 2
return self.last
"""
_MEMO = """
key = (x.data_ptr(), x.shape)
if key not in self.known:
    self.known[key] = torch.relu(x) * 2
return self.known[key]
"""
_ZEROING = """
y = torch.relu(x) * 2
x.zero_()
return y
"""
DOUBLED = "torch.relu(x) * 2"

CALLS = {
    "stale after five calls": case(DOUBLED, _STALE, own_init="self.calls = 0"),
    "zeroes its input": case(DOUBLED, _ZEROING),
}
"""Right in the calls that KernelBench checks."""

SHARED_PROCESS = {
    "rebinds the sizes of the reference": case(
        DOUBLED, "torch.relu(x[:1]) * 2", head="rows = 1", backend="cuda"
    ),
    "rebinds torch for the reference": case(
        DOUBLED,
        "torch.zeros_like(x)",
        head="class Fake:\n    relu = staticmethod(lambda x: x * 0)\nother, torch = torch, torch",
        backend="cuda",
    ),
    "patches allclose": case(
        DOUBLED, "torch.zeros_like(x)", head="torch.allclose = lambda *a, **k: True"
    ),
    "reads the caller's frame": case(
        DOUBLED,
        "return sys._getframe(3).f_locals.get('output', x)",
        head="import sys",
    ),
    "scans the heap": case(
        DOUBLED,
        "return [t for t in gc.get_objects() if torch.is_tensor(t) and t.shape == x.shape][-1]",
        head="import gc",
    ),
    "returns a lazy tensor": case(
        DOUBLED,
        "return x.as_subclass(Lazy)",
        head="class Lazy(torch.Tensor):\n    pass",
    ),
    "answers by address": case(DOUBLED, _MEMO, own_init="self.known = {}"),
    "patches the events": case(
        DOUBLED,
        "torch.zeros_like(x)",
        head="setattr(torch.cuda.Event, 'elapsed_time', lambda *a: 1e-6)",
    ),
    "an import behind a division": case(
        DOUBLED, "torch.zeros_like(x)", head="_ = 1 // 1; import threading"
    ),
    "a patch behind a string": case(
        DOUBLED, "torch.zeros_like(x)", head="_ = '#'; torch.cuda.synchronize = lambda *a: None"
    ),
}
"""Need the judge in their own process; nobody accepts them here, whichever rule is asked."""
