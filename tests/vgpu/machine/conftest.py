"""PTX for tests: compiled from Triton kernels, or assembled from a few lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lethe_env.vgpu.machine.program import LaunchReport, Options, Program
from lethe_env.vgpu.machine.program import compile as compile_ptx
from lethe_env.vgpu.memory import AddressSpace

_COMPILED: dict = {}

_TEMPLATE = """
.version 8.4
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry kernel({parameters}) .reqntid {threads}
{{
.reg .pred %p<20>;
.reg .b16 %h<40>;
.reg .b32 %r<40>;
.reg .b64 %d<40>;
.loc 1 1 0
{body}
ret;
}}
.file 1 "kernel.py"
"""


def assemble(body: str, parameters: int = 2, threads: int = 32) -> str:
    """A kernel whose parameters are pointers, in `%d1`, `%d2`, …; `%r1` is the thread, `%d20` it as
    64 bits, and `%d21` four times it.
    """
    names = ",".join(
        f".param .u64 .ptr .global .align 1 kernel_param_{k}" for k in range(parameters)
    )
    head = [f"ld.param.b64 %d{k + 1}, [kernel_param_{k}];" for k in range(parameters)]
    head += ["mov.u32 %r1, %tid.x;", "cvt.u64.u32 %d20, %r1;", "shl.b64 %d21, %d20, 2;"]
    text = "\n".join([*head, body])
    return _TEMPLATE.format(parameters=names, threads=threads, body=text)


class Machine:
    """Compiles once per kernel, and launches over torch tensors."""

    def __init__(self) -> None:
        self.memory = AddressSpace()

    def triton(
        self,
        function: triton.JITFunction,
        signature: dict[str, str],
        constants: dict[str, int],
        aligned: Sequence[str] = (),
        architecture: int = 80,
        **options: int,
    ) -> tuple[Program, int]:
        """A Triton kernel, and its dynamic shared memory in bytes."""
        name = function.fn.__qualname__
        key = (name, str(signature), str(constants), architecture, str(options))
        if key not in _COMPILED:
            names = function.arg_names
            types = {n: signature.get(n, "constexpr") for n in names}
            attributes = {
                (k,): [["tt.divisibility", 16]]
                for k, n in enumerate(names)
                if types[n].startswith("*") or n in aligned
            }
            values = {(names.index(n),): v for n, v in constants.items()}
            source = ASTSource(function, types, values, attributes)
            target = GPUTarget("cuda", architecture, 32)
            kernel = triton.compile(source, target=target, options={"num_warps": 4, **options})
            _COMPILED[key] = compile_ptx(kernel.asm["ptx"]), kernel.metadata.shared
        return _COMPILED[key]

    def run(
        self,
        program: Program,
        grid: Sequence[int],
        *arguments: torch.Tensor | int | float,
        undefined: Sequence[torch.Tensor] = (),
        **options: int | bool | None,
    ) -> LaunchReport:
        """Launch with tensors passed by their addresses."""
        values = [self.memory.pointer(a) if isinstance(a, torch.Tensor) else a for a in arguments]
        for tensor in undefined:
            self.memory.mark_undefined(tensor)
        return program.run(grid, values, self.memory, Options(**options))

    def assembled(
        self,
        body: str,
        *tensors: torch.Tensor,
        threads: int = 32,
        grid: Sequence[int] = (1,),
        shared_bytes: int = 4096,
        **options: int | bool | None,
    ) -> LaunchReport:
        """Run a few lines of PTX."""
        key = (body, len(tensors), threads)
        if key not in _COMPILED:
            _COMPILED[key] = compile_ptx(assemble(body, len(tensors), threads))
        return self.run(_COMPILED[key], grid, *tensors, shared_bytes=shared_bytes, **options)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def assembler() -> Callable[..., str]:
    return assemble
