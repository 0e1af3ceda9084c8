"""The kernels of `benchmarks/vgpu.py`, with inputs large enough that the launch does real work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

ELEMENTS = 1 << 20
ROWS, COLUMNS = 1024, 1008
DEPTH = 512
"""Side of the matrices in products."""


@dataclass(frozen=True)
class Case:
    """One kernel with its inputs, and the same operation in eager torch."""

    name: str
    run: Callable[[], Any]
    """Launches the kernel once."""
    output: torch.Tensor
    """What the kernel writes."""
    eager: Callable[[], torch.Tensor]
    memory_bound: bool = False
    """Whether eager torch is limited by memory traffic, too."""


@triton.jit
def _vector_add(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def _relu(x, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)


@triton.jit
def _gelu(x, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + i, mask=i < n)
    tl.store(out + i, 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476)), mask=i < n)


@triton.jit
def _softmax(x, out, columns, block: tl.constexpr):
    i = tl.arange(0, block)
    start = tl.program_id(0) * columns
    row = tl.load(x + start + i, mask=i < columns, other=-float("inf"))
    power = tl.exp(row - tl.max(row, 0))
    tl.store(out + start + i, power / tl.sum(power, 0), mask=i < columns)


@triton.jit
def _layer_norm(x, weight, bias, out, columns, epsilon, block: tl.constexpr):
    i = tl.arange(0, block)
    inside = i < columns
    start = tl.program_id(0) * columns
    row = tl.load(x + start + i, mask=inside, other=0.0)
    centred = tl.where(inside, row - tl.sum(row, 0) / columns, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / columns + epsilon)
    gain, offset = tl.load(weight + i, mask=inside), tl.load(bias + i, mask=inside)
    tl.store(out + start + i, centred * scale * gain + offset, mask=inside)


@triton.jit
def _rms_norm(x, weight, out, columns, epsilon, block: tl.constexpr):
    i = tl.arange(0, block)
    start = tl.program_id(0) * columns
    row = tl.load(x + start + i, mask=i < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(row * row, 0) / columns + epsilon)
    gain = tl.load(weight + i, mask=i < columns).to(tl.float32)
    tl.store(out + start + i, (row * scale * gain).to(tl.float16), mask=i < columns)


@triton.jit
def _row_sum(x, out, columns, block: tl.constexpr):
    i, row = tl.arange(0, block), tl.program_id(0)
    values = tl.load(x + row * columns + i, mask=i < columns, other=0.0)
    tl.store(out + row, tl.sum(values, 0))


@triton.jit
def _row_argmax(x, out, columns, block: tl.constexpr):
    i, row = tl.arange(0, block), tl.program_id(0)
    values = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    tl.store(out + row, tl.argmax(values, 0).to(tl.int64))


@triton.jit
def _cumsum(x, out, columns, block: tl.constexpr):
    i = tl.arange(0, block)
    start = tl.program_id(0) * columns
    values = tl.load(x + start + i, mask=i < columns, other=0.0)
    tl.store(out + start + i, tl.cumsum(values, 0), mask=i < columns)


@triton.jit
def _selective_scan(x, step, a, b, c, out, length, states: tl.constexpr):
    channel, channels = tl.program_id(0), tl.num_programs(0)
    s = tl.arange(0, states)
    decay = tl.load(a + channel * states + s)
    state = tl.zeros((states,), tl.float32)
    for t in range(length):
        delta = tl.load(step + t * channels + channel)
        value = tl.load(x + t * channels + channel)
        state = tl.exp(delta * decay) * state + delta * tl.load(b + t * states + s) * value
        tl.store(out + t * channels + channel, tl.sum(state * tl.load(c + t * states + s), 0))


@triton.jit
def _atomic_sum(x, out, n, columns: tl.constexpr, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.atomic_add(out + i % columns, tl.load(x + i, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def _histogram(x, out, n, bins: tl.constexpr, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    counts = tl.histogram(tl.load(x + i, mask=i < n, other=0), bins)
    tl.atomic_add(out + tl.arange(0, bins), counts)


@triton.jit
def _transpose(x, out, rows, columns, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)[:, None]
    j = tl.program_id(1) * block + tl.arange(0, block)[None, :]
    inside = (i < rows) & (j < columns)
    tile = tl.load(x + i * columns + j, mask=inside)
    tl.store(out + j * rows + i, tile, mask=inside)


@triton.jit
def _matmul(a, b, c, m, n, depth, block: tl.constexpr, step: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    j = tl.program_id(1) * block + tl.arange(0, block)
    k = tl.arange(0, step)
    total = tl.zeros((block, block), tl.float32)
    for start in range(0, depth, step):
        left = tl.load(a + i[:, None] * depth + start + k[None, :])
        right = tl.load(b + (start + k[:, None]) * n + j[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * n + j[None, :], total.to(c.dtype.element_ty))


@triton.jit
def _attention(q, k, v, out, length, scale, size: tl.constexpr, block: tl.constexpr):
    base = tl.program_id(1) * length * size
    i = tl.program_id(0) * block + tl.arange(0, block)
    j, d = tl.arange(0, block), tl.arange(0, size)
    query = tl.load(q + base + i[:, None] * size + d[None, :])
    highest = tl.full((block,), -float("inf"), tl.float32)
    weight = tl.zeros((block,), tl.float32)
    total = tl.zeros((block, size), tl.float32)
    for start in range(0, length, block):
        place = base + (start + j)[:, None] * size + d[None, :]
        scores = tl.dot(query, tl.trans(tl.load(k + place))) * scale
        higher = tl.maximum(highest, tl.max(scores, 1))
        power = tl.exp(scores - higher[:, None])
        fade = tl.exp(highest - higher)
        weight = weight * fade + tl.sum(power, 1)
        total = tl.dot(power.to(tl.float16), tl.load(v + place), total * fade[:, None])
        highest = higher
    tl.store(out + base + i[:, None] * size + d[None, :], (total / weight[:, None]).to(tl.float16))


@triton.jit
def _convolution(
    x, weight, out, channels, height, width, kernels, block: tl.constexpr, step: tl.constexpr
):
    """3 by 3, padded by 1, as a product with the patches of the image."""
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    kernel = tl.arange(0, block)
    image, rest = pixel // (height * width), pixel % (height * width)
    y, z = rest // width, rest % width
    total = tl.zeros((block, block), tl.float32)
    for start in range(0, channels * 9, step):
        k = start + tl.arange(0, step)
        channel, u, v = k // 9, k // 3 % 3 - 1, k % 3 - 1
        row, column = y[:, None] + u[None, :], z[:, None] + v[None, :]
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        place = ((image[:, None] * channels + channel[None, :]) * height + row) * width + column
        patch = tl.load(x + place, mask=inside, other=0.0)
        factor = tl.load(weight + kernel[None, :] * (channels * 9) + k[:, None])
        total = tl.dot(patch, factor, total)
    place = (image[:, None] * kernels + kernel[None, :]) * (height * width) + rest[:, None]
    tl.store(out + place, total)


def cases() -> list[Case]:
    """All of them; inputs are drawn here, once."""
    torch.manual_seed(0)
    return [*_elementwise(), *_rows(), *_scattered(), *_products()]


def _elementwise() -> list[Case]:
    grid = (ELEMENTS // 1024,)
    x, y, out = torch.randn(ELEMENTS), torch.randn(ELEMENTS), torch.empty(ELEMENTS)

    def run(kernel: Any, *inputs: torch.Tensor) -> Callable[[], Any]:
        return lambda: kernel[grid](*inputs, out, ELEMENTS, block=1024)

    return [
        Case("vector_add", run(_vector_add, x, y), out, lambda: x + y, memory_bound=True),
        Case("relu", run(_relu, x), out, lambda: torch.relu(x), memory_bound=True),
        Case("gelu", run(_gelu, x), out, lambda: F.gelu(x)),
    ]


def _rows() -> list[Case]:
    x, out = torch.randn(ROWS, COLUMNS), torch.empty(ROWS, COLUMNS)
    weight, bias = torch.randn(COLUMNS), torch.randn(COLUMNS)
    wide = torch.randn(ROWS, 4096).half()
    gain, normed = torch.randn(4096).half(), torch.empty_like(wide)
    half, sums = x.half(), torch.empty(ROWS, dtype=torch.float16)
    places = torch.empty(ROWS, dtype=torch.int64)
    few, sums_so_far = x[:128], torch.empty(128, COLUMNS)
    length, channels, states = 256, 64, 16
    value, step = torch.randn(length, channels), torch.rand(length, channels)
    decay = -torch.rand(channels, states)
    b, c = torch.randn(length, states), torch.randn(length, states)
    scanned = torch.empty(length, channels)

    def eager_scan() -> torch.Tensor:
        state, results = torch.zeros(channels, states), []
        for t in range(length):
            inflow = step[t, :, None] * b[t] * value[t, :, None]
            state = torch.exp(step[t, :, None] * decay) * state + inflow
            results.append((state * c[t]).sum(1))
        return torch.stack(results)

    grid = (ROWS,)
    return [
        Case("softmax", lambda: _softmax[grid](x, out, COLUMNS, block=1024), out,
             lambda: torch.softmax(x, 1), memory_bound=True),
        Case("layer_norm",
             lambda: _layer_norm[grid](x, weight, bias, out, COLUMNS, 1e-5, block=1024), out,
             lambda: F.layer_norm(x, (COLUMNS,), weight, bias), memory_bound=True),
        Case("rms_norm_fp16", lambda: _rms_norm[grid](wide, gain, normed, 4096, 1e-5, block=4096),
             normed, lambda: F.rms_norm(wide, (4096,), gain, 1e-5), memory_bound=True),
        Case("sum_fp16", lambda: _row_sum[grid](half, sums, COLUMNS, block=1024), sums,
             lambda: half.sum(1), memory_bound=True),
        Case("argmax", lambda: _row_argmax[grid](x, places, COLUMNS, block=1024), places,
             lambda: x.argmax(1), memory_bound=True),
        Case("cumsum", lambda: _cumsum[(len(few),)](few, sums_so_far, COLUMNS, block=1024),
             sums_so_far, lambda: few.cumsum(1), memory_bound=True),
        Case("selective_scan",
             lambda: _selective_scan[(channels,)](value, step, decay, b, c, scanned, length,
                                                  states=states, num_warps=1),
             scanned, eager_scan),
    ]  # fmt: skip


def _scattered() -> list[Case]:
    x, total = torch.randn(ELEMENTS), torch.zeros(1024)
    keys = torch.randint(0, 256, (ELEMENTS,), dtype=torch.int32)
    bins = torch.zeros(256, dtype=torch.int32)
    flipped = torch.empty(1024, 1024)
    grid = (ELEMENTS // 1024,)
    return [
        Case("atomic_sum",
             lambda: _atomic_sum[grid](x, total.zero_(), ELEMENTS, columns=1024, block=1024),
             total, lambda: x.view(1024, 1024).sum(0), memory_bound=True),
        Case("histogram",
             lambda: _histogram[grid](keys, bins.zero_(), ELEMENTS, bins=256, block=1024), bins,
             lambda: torch.bincount(keys, minlength=256)),
        Case("transpose",
             lambda: _transpose[(16, 16)](x, flipped, 1024, 1024, block=64), flipped,
             lambda: x.view(1024, 1024).t().contiguous(), memory_bound=True),
    ]  # fmt: skip


def _products() -> list[Case]:
    a, b = torch.randn(DEPTH, DEPTH), torch.randn(DEPTH, DEPTH)
    c, half_c = torch.empty(DEPTH, DEPTH), torch.empty(DEPTH, DEPTH, dtype=torch.float16)
    half_a, half_b = a.half(), b.half()
    heads, length, size = 8, 512, 64
    q, k, v = (torch.randn(heads, length, size).half() for _ in range(3))
    attended = torch.empty_like(q)
    image, weight = torch.randn(4, 32, 32, 32), torch.randn(64, 32, 3, 3)
    convolved = torch.empty(4, 64, 32, 32)
    grid = (DEPTH // 64, DEPTH // 64)
    sizes = (DEPTH, DEPTH, DEPTH)
    return [
        Case("matmul_fp16",
             lambda: _matmul[grid](half_a, half_b, half_c, *sizes, block=64, step=32),
             half_c, lambda: half_a @ half_b),
        Case("matmul_tf32", lambda: _matmul[grid](a, b, c, *sizes, block=64, step=32), c,
             lambda: a @ b),
        Case("attention",
             lambda: _attention[(length // 64, heads)](q, k, v, attended, length, size**-0.5,
                                                       size=size, block=64),
             attended, lambda: F.scaled_dot_product_attention(q, k, v)),
        Case("convolution",
             lambda: _convolution[(64,)](image, weight, convolved, 32, 32, 32, 64, block=64,
                                         step=32),
             convolved, lambda: F.conv2d(image, weight, padding=1)),
    ]  # fmt: skip
