"""The worker of `benchmarks/vgpu.py`: honest controls on larger batches, and kernels beside them.

A program of its own, because Triton decides when a kernel is defined how it will be run.

Usage: python benchmarks/vgpu_kernels.py vgpu|interpreter [NAME …]
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from lethe_env.cell import cuda_runtime
from lethe_env.cell.autotune import Rotation
from lethe_env.cell.launches import LaunchLog
from lethe_env.kernels.controls import HONEST, Control
from lethe_env.tasks.catalog import find_task
from lethe_env.tasks.inputs import draw_inputs
from lethe_env.tasks.modules import reference_module
from lethe_env.tasks.probe import Probe
from lethe_env.tasks.reference import task_reference

CONTROLS = (
    *("relu", "gelu", "softmax", "layer_norm", "rms_norm", "sum", "argmax", "cumsum"),
    *("matmul", "causal_conv1d", "max_pool2d", "causal_attention", "cross_entropy", "gated_scan"),
)
BATCH_FACTOR = 16
REPEATS = 5


@dataclass(frozen=True)
class Case:
    """One kernel with its inputs, and the same operation in eager torch."""

    name: str
    run: Callable[[], Any]
    eager: Callable[[], Any]


@triton.jit
def _add(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def _atomic_sum(x, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.atomic_add(out, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))


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
    tl.store(c + i[:, None] * n + j[None, :], total.to(tl.float16))


def cases() -> list[Case]:
    """All of them; inputs are drawn here, once."""
    chosen = {control.name: control for control in HONEST}
    return [_control(chosen[name]) for name in CONTROLS] + _plain()


def _control(control: Control) -> Case:
    task = find_task(control.task)
    sizes = dict(task.family.base)
    first = next(iter(sizes))
    probe = Probe(sizes={**sizes, first: BATCH_FACTOR * sizes[first]}, values="normal")
    if control.name == "matmul":
        probe = Probe(sizes={name: 2 * size for name, size in sizes.items()}, values="normal")
    inputs = draw_inputs(task, probe)
    reference = reference_module(task, probe)
    specification = importlib.util.spec_from_file_location(control.name, control.path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    candidate = module.ModelNew(*task_reference(task, probe.sizes).init_inputs())
    if list(reference.parameters()):
        candidate.load_state_dict(reference.state_dict())
    return Case(control.name, lambda: candidate(*inputs), lambda: reference(*inputs))


def _plain() -> list[Case]:
    torch.manual_seed(0)
    n, grid = 1 << 17, (128,)
    x, y = torch.randn(n), torch.randn(n)
    out, total = torch.empty(n), torch.zeros(1)
    keys, bins = torch.randint(0, 256, (n,), dtype=torch.int32), torch.zeros(256, dtype=torch.int32)
    a, b = torch.randn(256, 256).half(), torch.randn(256, 256).half()
    c = torch.empty(256, 256, dtype=torch.float16)
    matrix, flipped = torch.randn(512, 512), torch.empty(512, 512)
    return [
        Case("vector_add", lambda: _add[grid](x, y, out, n, block=1024), lambda: x + y),
        Case("atomic_sum", lambda: _atomic_sum[grid](x, total, n, block=1024), lambda: x.sum()),
        Case(
            "histogram",
            lambda: _histogram[grid](keys, bins, n, bins=256, block=1024),
            lambda: torch.bincount(keys, minlength=256),
        ),
        Case(
            "transpose",
            lambda: _transpose[(16, 16)](matrix, flipped, 512, 512, block=32),
            lambda: matrix.t().contiguous(),
        ),
        Case(
            "matmul_fp16",
            lambda: _matmul[(4, 4)](a, b, c, 256, 256, 256, block=64, step=32),
            lambda: a @ b,
        ),
    ]


def work(way: str, only: Sequence[str]) -> list[dict[str, Any]]:
    """First call, median of further calls, and eager, of every kernel; ms."""
    torch.set_num_threads(1)
    if way == "vgpu":
        from lethe_env.vgpu.driver import VirtualDriver

        VirtualDriver().activate()
    else:
        cuda_runtime.install_driver()
    Rotation(LaunchLog(lambda count: None)).install()  # the same configuration on both
    chosen = [case for case in cases() if not only or case.name in only]
    with torch.no_grad():
        x = torch.zeros(16)
        _add[(1,)](x, x, x, 16, block=16)  # what a process does once is nobody's compile time
        return [_measure(case, 1 if way == "interpreter" else REPEATS) for case in chosen]


def _measure(case: Any, repeats: int) -> dict[str, Any]:
    first_ms = _once(case.run)
    run_ms = statistics.median(_once(case.run) for _ in range(repeats))
    eager_ms = statistics.median(_once(case.eager) for _ in range(REPEATS))
    return {"name": case.name, "first_ms": first_ms, "run_ms": run_ms, "eager_ms": eager_ms}


def _once(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - started)


if __name__ == "__main__":
    print(json.dumps(work(sys.argv[1], sys.argv[2:])))
