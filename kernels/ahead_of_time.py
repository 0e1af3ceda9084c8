"""What kernels need on a GPU that is not here: compiled as far as machine code, never launched."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

ARCHITECTURES = (80, 90, 100)
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one compiled kernel takes."""

    kernel: str
    architecture: int
    """Compute capability times ten: 80, 90, 100."""
    warps: int
    registers: int
    """Of each thread."""
    spilled_bytes: int
    """Local memory of each thread: spilled registers, and arrays that fit none."""
    shared_bytes: int
    """Of each block."""
    tensor_memory_columns: int


@contextmanager
def compiled_for(architecture: int, warps: int | None = None) -> Iterator[list[Resources]]:
    """Inside, launches compile for `architecture` and do nothing else.

    Args:
        architecture: Compute capability times ten.
        warps: Warps of a block, instead of what launches ask for.

    Yields:
        The list to which each launch adds its kernel's resources.
    """
    found: list[Resources] = []
    launch = JITFunction.run

    def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        if warps is not None:
            options["num_warps"] = warps
        compiled = launch(kernel, *args, grid=grid, warmup=True, **options)
        found.append(_resources(compiled, architecture))

    slot, runtime = triton.runtime.driver, triton.knobs.runtime
    before, hook = slot._active, runtime.add_stages_inspection_hook
    slot.set_active(_Driver(architecture))
    runtime.add_stages_inspection_hook = None  # one that stops before machine code
    JITFunction.run = compile_only
    try:
        yield found
    finally:
        JITFunction.run = launch
        runtime.add_stages_inspection_hook = hook
        slot._active = before


class Usage(NamedTuple):
    """What machine code says of itself."""

    registers: int
    """Of each thread."""
    spilled_bytes: int
    """Local memory of each thread."""


def _resources(compiled: Any, architecture: int) -> Resources:
    found = usage(compiled.asm["cubin"])
    metadata = compiled.metadata
    return Resources(
        kernel=metadata.name,
        architecture=architecture,
        warps=metadata.num_warps,
        registers=found.registers,
        spilled_bytes=found.spilled_bytes,
        shared_bytes=metadata.shared,
        tensor_memory_columns=getattr(metadata, "tmem_size", None) or 0,
    )


def usage(cubin: bytes) -> Usage:
    """What the first kernel of a module uses, by the tool that comes with Triton."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = _USAGE.search(text)
    if found is None:
        raise RuntimeError(f"cuobjdump did not say what the kernel takes: {text.strip()[:300]}")
    registers, stack_bytes, local_bytes = map(int, found.groups())
    return Usage(registers, stack_bytes + local_bytes)


class _Driver:
    """As much of a Triton driver as compiling asks for."""

    def __init__(self, architecture: int) -> None:
        self._architecture = architecture
        self.utils = SimpleNamespace()

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._architecture, 32)

    def get_current_device(self) -> int:
        """Numbered by target, so that compiled kernels are kept apart from those of a real GPU."""
        return -self._architecture

    def get_current_stream(self, device: int | None = None) -> int:
        return 0
