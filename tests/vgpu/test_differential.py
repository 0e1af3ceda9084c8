"""The compiler against the executor: the same PTX on the same numbers, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from lethe_env.vgpu.machine.program import Options
from lethe_env.vgpu.machine.program import compile as compile_ptx
from lethe_env.vgpu.memory import AddressSpace
from lethe_env.vgpu.ptx.parser import parse

from . import fuzz
from .executor.machine import execute
from .ptx.corpus import load, text_of

CHUNK = 60


def run_compiled(text, inputs, results):
    memory = AddressSpace()
    tensors = [torch.from_numpy(array.view(np.int64)) for array in (inputs, results)]
    pointers = [memory.pointer(tensor) for tensor in tensors]
    options = Options(shared_bytes=fuzz.SHARED_BYTES)
    report = compile_ptx(text).run((1,), pointers, memory, options)
    assert report.findings == ()


@pytest.mark.parametrize("first", range(0, len(fuzz.TEMPLATES), CHUNK))
def test_every_instruction(first):
    templates = fuzz.TEMPLATES[first : first + CHUNK]
    assert [
        line
        for seed in (1, 2)
        for line in fuzz.differences(fuzz.all_of(templates, seed), run_compiled)
    ] == []


@settings(
    max_examples=8,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(program=fuzz.programs(most_steps=40))
def test_random_programs(program):
    assert fuzz.differences(program, run_compiled) == []


def normal(*shape, dtype=torch.float32, seed=2):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


KERNELS = {
    "relu_fp32": ((2,), (normal(300), torch.zeros(300), 300)),
    "sum_fp32": ((2,), (normal(2, 300), torch.zeros(2), 300)),
    "sum_fp16": ((2,), (normal(2, 300).half(), torch.zeros(2).half(), 300)),
    "cumsum_fp32": ((2,), (normal(2, 300), torch.zeros(2, 300), 300)),
    "argmax_fp16": ((2,), (normal(2, 300).half(), torch.zeros(2, dtype=torch.int64), 300)),
    "gated_scan_fp32": (
        (1, 1),
        (normal(1, 5, 40), normal(1, 5, 40, seed=3), torch.zeros(200), 5, 40),
    ),
    "matmul_fp32": (
        (2, 2),
        (normal(20, 18), normal(18, 24), torch.zeros(20, 24), 20, 24, 18, 18, 1, 24, 1),
    ),
    "dot_fp32": ((1, 2), (normal(32, 64), normal(64, 64), torch.zeros(32, 64), 64, 64)),
    "dot_fp16": (
        (1, 2),
        (normal(32, 64).half(), normal(64, 64).half(), torch.zeros(32, 64), 64, 64),
    ),
}
"""Kernels without approximate instructions: name, then grid and arguments."""


NEWER = [(name, target) for name in ("dot_fp16", "dot_fp32") for target in ("sm_90a", "sm_100a")]
"""Kernels whose sums depend on the target."""


@pytest.mark.parametrize("name,target", [*((name, "sm_80") for name in KERNELS), *NEWER])
def test_kernels(name, target):
    grid, arguments = KERNELS[name]
    text = text_of(name).replace(".target sm_80", f".target {target}")
    shared_bytes = load(name)[1]
    kernel = parse(text)
    assert kernel.target == target
    ours, theirs = (
        [item.clone() if isinstance(item, torch.Tensor) else item for item in arguments]
        for _ in range(2)
    )
    execute(
        kernel,
        grid,
        [item.numpy() if isinstance(item, torch.Tensor) else item for item in ours],
        shared_bytes,
    )
    memory = AddressSpace()
    pointers = [memory.pointer(i) if isinstance(i, torch.Tensor) else i for i in theirs]
    options = Options(shared_bytes=shared_bytes)
    report = compile_ptx(text).run(grid, pointers, memory, options)
    assert report.findings == ()
    for mine, yours in zip(ours, theirs, strict=True):
        if isinstance(mine, torch.Tensor):
            assert torch.equal(mine, yours)
            assert mine.any()
