"""Host functions of the CuTe DSL, compiled for a GPU that need not be there."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .tensor_arguments import TensorType, tensor_type
from .toolkit import ARCHITECTURE, load


@dataclass(frozen=True, slots=True)
class Compiled:
    """A host function and its kernel."""

    host: Any
    """The DSL's compiled function: code of the host in MLIR, and how arguments are passed."""
    ptx: str
    cubin: bytes
    tensors: tuple[TensorType | None, ...]
    """What it takes as tensors, by position; `None` for other arguments."""


def compile_host(function: Callable[..., None], *arguments: Any) -> Compiled:
    """Compile a `@cute.jit` function that launches one `@cute.kernel`, for sm_100a.

    No GPU and no driver is needed. Lines of the kernel's source are kept, for findings.

    Args:
        function: decorated with `cute.jit`.
        arguments: a fake tensor of the DSL (`cutlass.cute.runtime.make_fake_compact_tensor`) in
            place of each tensor, and a number of the DSL (`cutlass.Int32(1)`) in place of others.

    Raises:
        ModuleNotFoundError: the DSL is not installed.
    """
    cute = load()
    names = list(inspect.signature(function).parameters)
    fake = type(load("cutlass.cute.runtime").make_fake_tensor(load("cutlass").Int8, (1,), (1,)))
    tensors = tuple(
        tensor_type(name, argument) if isinstance(argument, fake) else None
        for name, argument in zip(names, arguments, strict=True)
    )
    with tempfile.TemporaryDirectory(prefix="lethe-cute-") as folder:
        options = (
            f"--gpu-arch {ARCHITECTURE} --generate-line-info --keep-ptx --keep-cubin "
            f"--dump-dir {folder}"
        )
        host = cute.compile(function, *arguments, options=options)
        ptx, cubin = host.__ptx__, host.__cubin__
    return Compiled(host, ptx, cubin, tensors)
