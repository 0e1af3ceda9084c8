"""Tensor memory as PTX has it, against what Triton says; and each way to misuse it."""

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lethe_env.kernels import footprint as module
from lethe_env.kernels.ahead_of_time import Usage
from lethe_env.kernels.footprint import footprint


@triton.jit
def product(left, right, out, WIDTH: tl.constexpr):
    row, column, depth = tl.arange(0, 128), tl.arange(0, WIDTH), tl.arange(0, 64)
    a = tl.load(left + row[:, None] * 64 + depth[None, :])
    b = tl.load(right + depth[:, None] * WIDTH + column[None, :])
    tl.store(out + row[:, None] * WIDTH + column[None, :], tl.dot(a, b))


def test_a_kernel_of_triton_is_read_as_triton_says():
    source = ASTSource(
        product,
        {"left": "*fp16", "right": "*fp16", "out": "*fp32", "WIDTH": "constexpr"},
        {(3,): 64},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 100, 32))
    found = footprint(compiled.asm["ptx"], compiled.asm["cubin"])
    assert found.allocated == (compiled.metadata.tmem_size,) == (64,)
    assert found.faults == ()
    assert 0 < found.registers <= 255


ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], {};"
DEALLOC = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, {};"
RELINQUISH = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"


def lines(*columns, released=None, relinquished=1):
    ends = columns if released is None else released
    body = [ALLOC.format(c) for c in columns] + [RELINQUISH] * relinquished
    return "\n\t".join([*body, *(DEALLOC.format(c) for c in ends)])


@pytest.mark.parametrize(
    ("ptx", "spilled_bytes", "faults"),
    [
        (lines(256), 0, ()),
        ("mov.b32 %r9, 128;\n\t" + lines("%r9"), 0, ()),
        (lines(544), 0, ("544 tensor-memory columns, the limit is 512",)),
        (lines(256), 8, ("8 bytes a thread spilled",)),
        (lines(32, 64), 0, ("2 allocations of tensor memory",)),
        (
            lines(256, released=()),
            0,
            ("allocations of 256 columns, releases of no",),
        ),
        (lines(256, released=(128,)), 0, ("allocations of 256 columns, releases of 128",)),
        (lines(256, relinquished=0), 0, ("0 times the right to allocate given up",)),
        (
            "ld.param.b32 %r9, [columns];\n\t" + lines("%r9"),
            0,
            ("an allocation whose columns are not known beforehand",),
        ),
        (
            "mov.b32 %r9, 64;\n\tmov.b32 %r9, 128;\n\t" + lines("%r9"),
            0,
            ("an allocation whose columns are not known beforehand",),
        ),
    ],
)
def test_faults_are_told(ptx, spilled_bytes, faults, monkeypatch):
    monkeypatch.setattr(module, "usage", lambda cubin: Usage(40, spilled_bytes))
    assert footprint(ptx, b"").faults == faults


def test_a_kernel_without_tensor_memory_has_no_allocation(monkeypatch):
    monkeypatch.setattr(module, "usage", lambda cubin: Usage(40, 0))
    found = footprint("add.s32 %r1, %r2, 3;", b"")
    assert (found.columns, found.allocated, found.released) == (0, (), ())
