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
from .ptx.corpus import load, text_of, wrapped

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


HALVES = ("add.f16x2", "sub.bf16x2", "mul.ftz.f16x2", "min.NaN.f16x2", "max.bf16x2", "neg.f16x2",
          "abs.bf16x2", "fma.rn.f16x2", "add.sat.f16x2")  # fmt: skip
SPECIAL = (0x0000, 0x8000, 0x0001, 0x03FF, 0x3C00, 0xBC01, 0x7BFF, 0x7C00, 0xFC00, 0x7E01, 0xFD55)


@pytest.mark.parametrize("opcode", HALVES)
def test_lower_halves(opcode):
    """Nobody reads the upper half of the result, which then is not computed."""
    operands = {"neg": 1, "abs": 1, "fma": 3}.get(opcode.split(".")[0], 2)
    names = ", ".join(("%r2", "%r3", "%r2")[:operands])
    agree(f"{opcode} %r4, {names}; mov.b32 {{%h1, _}}, %r4;")


ACROSS = {
    "a sum": """mov.b32 {%h1, _}, %r2; mov.b32 {%h2, _}, %r3; add.f16 %h1, %h1, %h2;
        cvt.u32.u16 %r4, %h1; shfl.sync.bfly.b32 %r5, %r4, 16, 31, -1; cvt.u16.u32 %h3, %r5;
        add.f16 %h1, %h1, %h3; cvt.u32.u16 %r4, %h1; shfl.sync.bfly.b32 %r5, %r4, 8, 31, -1;
        cvt.u16.u32 %h3, %r5; add.f16 %h1, %h1, %h3;""",
    "a segment": """mov.b32 {%h1, _}, %r2; mov.b32 {%h2, _}, %r3; mul.f16 %h1, %h1, %h2;
        cvt.u32.u16 %r4, %h1; shfl.sync.up.b32 %r5|%p1, %r4, 3, 6144, -1; cvt.u16.u32 %h3, %r5;
        @%p1 max.f16 %h1, %h1, %h3; min.NaN.f16 %h1, %h1, %h2;""",
    "lanes in registers": """mov.b32 {%h1, _}, %r2; mov.b32 {%h2, _}, %r3; sub.f16 %h1, %h1, %h2;
        cvt.u32.u16 %r4, %h1; xor.b32 %r6, %r1, 5; shfl.sync.idx.b32 %r5, %r4, %r6, 31, -1;
        cvt.u16.u32 %h3, %r5; fma.rn.f16 %h1, %h3, %h2, %h1;""",
    "other bits in between": """mov.b32 {%h1, %h2}, %r2; add.f16 %h1, %h1, %h2; mov.b16 %h3, %h1;
        mov.b32 %r4, {%h3, %h2}; xor.b32 %r4, %r4, 32768; mov.b32 {%h4, _}, %r4;
        mov.b32 %r5, {%h3, %h2}; mov.b32 %r6, %r5; mov.b32 {%h3, _}, %r6; add.f16 %h3, %h3, %h3;
        neg.f16 %h3, %h3; add.f16 %h1, %h4, %h3;""",
    "bytes": """mov.b32 {%h1, _}, %r2; mov.b32 {%h2, _}, %r3; add.f16 %h1, %h1, %h2;
        cvt.u32.u16 %r4, %h1; mov.b32 {%h3, %h4, %h5, %h6}, %r4; add.f16 %h1, %h3, %h4;
        mov.b32 %r5, {%h1, %h3, %h4, %h5}; mov.b32 {%h2, _}, %r5; add.f16 %h1, %h2, %h2;""",
    "a part of the lanes": """mov.b32 {%h1, _}, %r2; mov.b32 {%h2, _}, %r3; add.f16 %h3, %h1, %h2;
        setp.lt.u32 %p1, %r1, 9; @%p1 mov.b16 %h3, %h2; add.f16 %h4, %h3, %h1;
        @%p1 add.f16 %h4, %h4, %h1; mul.f16 %h1, %h4, %h2;""",
    "sums of halves in floats": """mov.b32 {%h1, _}, %r2; mov.b32 {%h2, _}, %r3;
        add.f16 %h3, %h1, %h2; cvt.f32.f16 %r4, %h3; fma.rn.f32.f16 %r4, %h1, %h3, %r4;
        sub.f32.f16 %r4, %h3, %r4; cvt.rn.f16.f32 %h1, %r4;""",
    "a uniform half": """mov.u32 %r4, %ctaid.x; add.u32 %r4, %r4, 15361; cvt.u16.u32 %h3, %r4;
        mov.b32 {%h1, _}, %r2; add.f16 %h4, %h3, %h3; add.f16 %h1, %h1, %h4;
        sub.f16 %h1, %h1, %h3;""",
}
"""Halves whose values are known from an earlier instruction, and some that only seem to be."""


@pytest.mark.parametrize("name", ACROSS)
def test_halves_that_stay_in_registers(name):
    agree(ACROSS[name])


def agree(body):
    """Run a body on pairs of special halves in `%r2` and `%r3`; what is in `%h1` is the result."""
    text = wrapped(f"""
        ld.param.b64 %d1, [data];
        mov.u32 %r1, %tid.x;
        mul.wide.u32 %d2, %r1, 8;
        add.s64 %d1, %d1, %d2;
        ld.global.v2.b32 {{%r2, %r3}}, [%d1];
        {body}
        st.global.b16 [%d1], %h1;
        ret;
    """).replace(".target sm_80", ".target sm_100a")
    random = np.random.default_rng(5)
    pairs = np.array([(a, b) for a in SPECIAL for b in SPECIAL], np.uint32)
    upper = random.integers(0, 1 << 16, pairs.shape, dtype=np.uint32) << 16
    words = np.concatenate([pairs | upper, np.zeros((-len(pairs) % 32, 2), np.uint32)])
    program, kernel = compile_ptx(text), parse(text)
    for pattern in words.reshape(-1, 32, 2):
        ours = pattern.copy()
        execute(kernel, (1,), [ours, 0], 0)
        theirs = torch.from_numpy(pattern.view(np.int32).copy())
        memory = AddressSpace()
        report = program.run((1,), [memory.pointer(theirs), 0], memory)
        assert report.findings == ()
        assert np.array_equal(theirs.numpy().view(np.uint32), ours)
        assert (ours != pattern).any()
