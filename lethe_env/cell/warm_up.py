"""Compiling once before anybody is forked: what compilers set up on first use takes a second."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource


@triton.jit
def _double(x, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def compile_to_ptx(architecture: int) -> str:
    """Have Triton compile a small kernel for an architecture such as 80, without the assembler."""
    assemble = CUDABackend.make_cubin
    CUDABackend.make_cubin = lambda *_: b""
    try:
        signature = {"x": "*fp32", "n": "i32", "block": "constexpr"}
        source = ASTSource(_double, signature, {"block": 128}, {})
        ptx: str = triton.compile(source, target=GPUTarget("cuda", architecture, 32)).asm["ptx"]
    finally:
        CUDABackend.make_cubin = assemble
    return ptx
