"""NVIDIA's examples of kernels in the CuTe DSL as cases: how each is made, called and judged.

An example is imported from a checkout of CUTLASS; nothing of it is here but the names that it
gives its parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lethe_env.gates.rounding import Precision, allowed, estimate
from lethe_env.kernels.cute_dsl import load

Judged = tuple[str, Tensor, Tensor, Tensor]
"""A result by its name, the truth in float64, and the largest error of a correct kernel."""


@dataclass(frozen=True)
class Trial:
    """An example made ready: what is compiled, and what it is called with."""

    host: Callable[..., None]
    operands: Sequence[Any]
    """Tensors, and whatever else the host function takes at a call."""
    constants: Sequence[int]
    """What it takes besides when it is compiled, before the last operand."""
    judge: Callable[[], list[Judged]]
    """Results against the truth, after the call."""


@dataclass(frozen=True)
class Case:
    """One example in one configuration."""

    name: str
    file: str
    """In the folder of the examples for Blackwell."""
    configuration: str
    prepare: Callable[[ModuleType], Trial]


STEP_TERMS, STEP_FRACTION_BITS = 16, 25
"""Of one sum in a tensor core: products of 16-bit factors, and fraction bits that are kept."""


def product_bound(left: Tensor, right: Tensor, output_dtype: torch.dtype) -> Tensor:
    """The largest error of `left @ right.T` on Blackwell's tensor cores, rounded to its dtype.

    Of each 16 products and the total so far, all aligned to the largest, a tensor core drops what
    lies below 2⁻²⁵ of it, and of their sum what float32 does not hold: below 17·2⁻²⁵ + 2⁻²³ of
    the sum S of all magnitudes. K/16 such steps follow each other. Rounding to nearest adds half a
    step of the output.

    Args:
        left: [..., M, K] in a half type, exact in float64.
        right: [..., N, K].
        output_dtype: Of the result.

    Returns:
        float64 [..., M, N].
    """
    left, right = left.double(), right.double()
    magnitudes = left.abs() @ right.abs().mT
    steps = -(-left.shape[-1] // STEP_TERMS)
    dropped = (STEP_TERMS + 1) * 2.0**-STEP_FRACTION_BITS + torch.finfo(torch.float32).eps
    total = steps * dropped * magnitudes
    if output_dtype == torch.float32:
        return total
    finfo = torch.finfo(output_dtype)
    largest = (left @ right.mT).abs() + total
    _, exponent = largest.clamp(min=finfo.smallest_normal).frexp()
    return total + finfo.eps / 4 * torch.exp2(exponent.double())


def stream() -> Any:
    """The default one; no driver is asked."""
    return load("cuda.bindings.driver").CUstream(0)


def unwritten(*shape: int, dtype: torch.dtype) -> Tensor:
    """A result that no kernel has touched: NaN."""
    return torch.full(shape, torch.nan, dtype=dtype)


ROWS, COLUMNS, DEPTH = 256, 512, 256
ONE_BLOCK = {
    "use_2cta_instrs": False,
    "cluster_shape_mnk": (1, 1, 1),
    "mma_inst_shape_mnk": (128, 256, 16),
    "mma_tiler_mnk": (128, 256, 64),
    "ab_stages": 4,
}
"""What the later examples of the tutorial call their settings, for products of one block."""


def tutorial(module: ModuleType, one_block: bool = False, blocks: int | None = None) -> Trial:
    """A host function of the tutorial: a [M, K], b [N, K], c [M, N] in float16."""
    if one_block:
        for name, value in ONE_BLOCK.items():
            setattr(module, name, value)
    left, right = torch.randn(ROWS, DEPTH).half(), torch.randn(COLUMNS, DEPTH).half()
    out = unwritten(ROWS, COLUMNS, dtype=torch.float16)

    def judge() -> list[Judged]:
        bound = product_bound(left, right, out.dtype)
        return [("c", out, left.double() @ right.double().mT, bound)]

    constants = [] if blocks is None else [blocks]
    return Trial(module.host_function, [left, right, out], constants, judge)


@dataclass(frozen=True)
class Dense:
    """A batched product `[M, K, L] × [N, K, L] → [M, N, L]` of the class of an example."""

    kernel: str
    tma_store: bool = True
    tile: tuple[int, int] = (128, 128)
    majors: str = "kkn"
    """Which dimension of each of the three tensors is contiguous."""
    dtype: torch.dtype = torch.float16
    output: torch.dtype = torch.float16
    blocks: int | None = None
    """Of a persistent kernel."""
    two_blocks: bool = False
    """Whether two blocks share a product."""
    cluster: tuple[int, int] = (1, 1)
    """Blocks of a cluster along rows and columns."""

    def __call__(self, module: ModuleType) -> Trial:
        """Make it ready."""
        rows, columns, depth, batch = 256, 256, 256, 2
        float32 = load("cutlass").Float32
        host = getattr(module, self.kernel)(
            float32, self.two_blocks, self.tile, self.cluster, self.tma_store
        )
        left = torch.randn(batch, rows, depth).to(self.dtype)
        right = torch.randn(batch, columns, depth).to(self.dtype)
        out = unwritten(batch, rows, columns, dtype=self.output)
        operands = [
            _major(x, major == first)
            for x, major, first in zip((left, right, out), self.majors, "mnm", strict=True)
        ]

        def judge() -> list[Judged]:
            found = operands[2].permute(2, 0, 1)
            bound = product_bound(left, right, self.output)
            return [("c", found, left.double() @ right.double().mT, bound)]

        constants = [] if self.blocks is None else [self.blocks]
        return Trial(host, [*operands, stream()], constants, judge)


def _major(x: Tensor, first: bool) -> Tensor:
    """[L, rows, columns] → [rows, columns, L], rows or columns contiguous."""
    return x.mT.contiguous().permute(2, 1, 0) if first else x.permute(1, 2, 0)


HEADS, CHUNKS, WIDTH, CHUNK, STATE = 2, 3, 64, 128, 128


def state_space(module: ModuleType, skip: str) -> Trial:
    """Mamba-2's scan of one sequence: four products a chunk under one allocation.

    Args:
        module: The example.
        skip: Whether x is added to the output, times a number for each `channel` or `head`.
    """
    cutlass, dtype = load("cutlass"), torch.bfloat16
    host = module.SSDKernel(
        cutlass.BFloat16, cutlass.Float32, cutlass.Float32, CHUNK, WIDTH, STATE,
        skip != "none", skip == "channel",
    )  # fmt: skip
    x = torch.randn(HEADS, WIDTH, CHUNKS, CHUNK).div(2).to(dtype)
    step = F.softplus(torch.randn(HEADS, CHUNKS, CHUNK) - 4).to(dtype)
    rate = -torch.randn(HEADS, 1, 1).exp()
    decay = (step.float() * rate).cumsum(-1)
    key, query = (torch.randn(1, STATE, CHUNKS, CHUNK).div(2).to(dtype) for _ in range(2))
    weight = torch.randn(HEADS, WIDTH if skip == "channel" else 1).to(dtype)
    y = unwritten(1, HEADS, WIDTH, CHUNKS, CHUNK, dtype=dtype)
    final = unwritten(1, HEADS, WIDTH, STATE, dtype=dtype)

    def judge() -> list[Judged]:
        given = [tensor.double() for tensor in (x, step, decay, key[0], query[0], weight)]
        precision = Precision(dtype=dtype)
        truth = estimate(partial(scan, *given, adds=skip != "none"), precision)
        bounds = map(partial(allowed, precision=precision, output_dtype=dtype),
                     truth.values, truth.deviation)  # fmt: skip
        return list(zip("yS", (y[0], final[0]), truth.values, bounds, strict=True))

    operands = [
        x[None].permute(2, 4, 3, 1, 0), decay[None].permute(3, 2, 1, 0),
        step[None].permute(3, 2, 1, 0), key[None].permute(4, 2, 3, 1, 0),
        query[None].permute(4, 2, 3, 1, 0), y.permute(4, 2, 3, 1, 0), final.permute(2, 3, 1, 0),
        weight.T if skip != "none" else None, stream(),
    ]  # fmt: skip
    return Trial(host, operands, [1], judge)


def scan(
    x: Tensor, step: Tensor, decay: Tensor, key: Tensor, query: Tensor, weight: Tensor, adds: bool
) -> tuple[Tensor, Tensor]:
    """The scan chunk by chunk, as a kernel rounds it.

    Args:
        x: [heads, width, chunks, C], step and `decay`, its sum within a chunk, [heads, chunks, C].
        step: What an input is weighted with.
        decay: Logarithm.
        key: [state, chunks, C], like query.
        query: What the state is read with.
        weight: Of x in the output, [heads, width or 1].
        adds: Whether x is added.

    Returns:
        Outputs [heads, width, chunks, C] and the final state [heads, width, state].
    """
    state = x.new_zeros(len(x), x.shape[1], len(key))
    causal = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool).tril()
    outputs = []
    for n in range(x.shape[2]):
        since = decay[:, n, :, None] - decay[:, n, None, :]
        pairs = query[:, n].T @ key[:, n] * since.exp().where(causal, 0.0) * step[:, n, None, :]
        within = x[:, :, n] @ pairs.mT
        before = state @ query[:, n] * decay[:, n, None, :].exp()
        outputs.append(within + before + (weight[:, :, None] * x[:, :, n] if adds else 0.0))
        rest = (decay[:, n, -1:] - decay[:, n]).exp() * step[:, n]
        state = (
            state * decay[:, n, -1, None, None].exp() + x[:, :, n] @ (key[:, n] * rest[:, None]).mT
        )
    return torch.stack(outputs, 2), state


def attention(module: ModuleType, causal: bool) -> Trial:
    """Attention of 256 tokens, 64 channels and 2 heads that share keys."""
    float32 = load("cutlass").Float32
    tokens, heads, width = 256, 2, 64
    scale = width**-0.5
    masks = module.fmha_utils.MaskEnum
    host = module.BlackwellFusedMultiHeadAttentionForward(
        float32, float32, (128, 128), width, False, masks.WINDOW_MASK, False, False
    )
    query = torch.randn(1, tokens, 1, heads, width).half()
    key, value = (torch.randn(1, tokens, 1, 1, width).half() for _ in range(2))
    out = unwritten(*query.shape, dtype=torch.float16)
    last = load("cutlass").Int32(0) if causal else None
    absent = [None] * 4
    numbers = [float32(x) for x in (scale / math.log(2), scale, 1.0)]
    sizes = (1, tokens, tokens, tokens, heads, 1, width, width)
    operands = [
        *(query, key, value, out, sizes, *absent, *numbers, None, None, last, None, None),
        *(stream(), False),
    ]

    def attend() -> list[Tensor]:
        queries = query[0, :, 0].double().transpose(0, 1)
        keys, values = key[0, :, 0, 0].double(), value[0, :, 0, 0].double()
        scores = queries @ keys.T * scale
        if causal:
            scores = scores.where(torch.ones(tokens, tokens, dtype=torch.bool).tril(), -torch.inf)
        return [scores.softmax(-1) @ values]

    def judge() -> list[Judged]:
        precision = Precision(dtype=torch.float16)
        truth = estimate(attend, precision)
        bound = allowed(truth.values[0], truth.deviation[0], precision, torch.float16)
        return [("o", out[0, :, 0].transpose(0, 1), truth.values[0], bound)]

    return Trial(host, operands, [], judge)


CLUSTERS: Sequence[dict[str, Any]] = (
    {"cluster": (2, 1)},
    {"cluster": (1, 2)},
    {"cluster": (2, 2)},
    {"two_blocks": True, "cluster": (2, 1)},
    {"two_blocks": True, "cluster": (2, 2), "tile": (256, 128)},
    {"two_blocks": True, "cluster": (4, 1), "majors": "mnm"},
    {"two_blocks": True, "cluster": (2, 1), "tile": (256, 256), "tma_store": False},
)
PAIRS: Sequence[dict[str, Any]] = (
    {"cluster": (2, 2)},
    {"two_blocks": True, "cluster": (2, 2), "tile": (256, 128)},
)
PERSISTENT = (
    ("dense_gemm_persistent", 1),
    ("dense_gemm_persistent_prefetch", 1),
    ("dense_gemm_persistent_dynamic", None),
)
"""With how many clusters at once, where that is given."""

GEMM, TUTORIAL = "kernel/dense_gemm", "tutorial/tutorial_gemm"


def cases() -> list[Case]:
    """All, in the order in which they are told."""
    dense = [
        ("dense_gemm", Dense("DenseGemmKernel")),
        ("dense_gemm", Dense("DenseGemmKernel", tma_store=False)),
        ("dense_gemm", Dense("DenseGemmKernel", majors="mnm", tile=(64, 256))),
        ("dense_gemm", Dense("DenseGemmKernel", dtype=torch.bfloat16, output=torch.float32)),
        *(("dense_gemm", Dense("DenseGemmKernel", **how)) for how in CLUSTERS),
        ("dense_gemm_software_pipeline", Dense("DenseGemmKernel")),
        ("dense_gemm_persistent", Dense("PersistentDenseGemmKernel", blocks=2)),
        ("dense_gemm_persistent", Dense("PersistentDenseGemmKernel", blocks=3, tma_store=False)),
        ("dense_gemm_persistent_prefetch", Dense("PersistentDenseGemmKernel", blocks=2)),
        ("dense_gemm_persistent_dynamic", Dense("PersistentDenseGemmKernel")),
        *(("dense_gemm_software_pipeline", Dense("DenseGemmKernel", **how)) for how in PAIRS),
        *(
            (name, Dense("PersistentDenseGemmKernel", **how, blocks=blocks))
            for name, blocks in PERSISTENT
            for how in PAIRS
        ),
    ]
    tutorials = [
        ("fp16_gemm_0", "as it is", tutorial),
        ("fp16_gemm_1", "as it is", tutorial),
        ("fp16_gemm_2", "one block a product", partial(tutorial, one_block=True)),
        ("fp16_gemm_2", "as it is", tutorial),
        ("fp16_gemm_3", "as it is", partial(tutorial, blocks=1)),
    ]
    return [
        *(Case(name, f"{TUTORIAL}/{name}.py", how, made) for name, how, made in tutorials),
        *(Case(name, f"{GEMM}/{name}.py", _told(made), made) for name, made in dense),
        *(
            Case("mamba2_ssd", "kernel/attention/mamba2_ssd/mamba2_ssd.py", f"D: {skip}",
                 partial(state_space, skip=skip))
            for skip in ("channel", "none")
        ),
        *(
            Case("fmha", "kernel/attention/fmha/fmha.py", told, partial(attention, causal=causal))
            for told, causal in (("all keys", False), ("causal", True))
        ),
    ]  # fmt: skip


def _told(case: Dense) -> str:
    names = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}
    store = "TMA store" if case.tma_store else "threads store"
    pair = ", two blocks a product" if case.two_blocks else ""
    cluster = "" if case.cluster == (1, 1) else ", clusters of {}×{}".format(*case.cluster)
    rows, columns = case.tile
    types = f"{names[case.dtype]} → {names[case.output]}"
    return f"{types}, {rows}×{columns}, {case.majors}, {store}{pair}{cluster}"
