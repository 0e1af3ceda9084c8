"""The CuTe DSL, an optional package: imported when it is needed, compiling without a GPU."""

from __future__ import annotations

import importlib
import inspect
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any

ARCHITECTURE = "sm_100a"
"""What kernels are compiled for."""
MISSING = (
    "kernels in the CuTe DSL need nvidia-cutlass-dsl: pip install 'lethe_env[blackwell]' "
    "(Python 3.10 to 3.14 on Linux)"
)


def is_installed() -> bool:
    """Whether the DSL can be imported; imports nothing."""
    return find_spec("nvidia_cutlass_dsl") is not None


def load(module: str = "cutlass.cute") -> ModuleType:
    """A module of the DSL.

    The DSL asks a driver for the architecture, unless the environment says it when the DSL is
    imported; so this sets `CUTE_DSL_ARCH` where nobody has.

    Raises:
        ModuleNotFoundError: the package is not installed; says how to.
    """
    if not is_installed():
        raise ModuleNotFoundError(MISSING)
    os.environ.setdefault("CUTE_DSL_ARCH", ARCHITECTURE)
    return importlib.import_module(module)


def placeholder(dtype: str, *shape: int | None, align_bytes: int = 16) -> Any:
    """What a host function is compiled with in place of a contiguous tensor.

    Args:
        dtype: the DSL's name of the element type, such as `Float16`.
        shape: lengths, `None` where one is not known.
        align_bytes: what the first address is a multiple of.
    """
    cute = load()
    sizes = tuple(cute.sym_int() if size is None else size for size in shape)
    return load("cutlass.cute.runtime").make_fake_compact_tensor(
        getattr(load("cutlass"), dtype),
        sizes,
        stride_order=tuple(reversed(range(len(shape)))),
        assumed_align=align_bytes,
    )


@dataclass(frozen=True, slots=True)
class Compiled:
    """A host function and its kernel."""

    host: Any
    """The DSL's compiled function: code of the host in MLIR, and how arguments are passed."""
    ptx: str
    cubin: bytes
    parameters: tuple[tuple[str, Any], ...]
    """Names of what the host function takes, and what each was compiled with; no constants."""


def compile_host(function: Callable[..., None], *arguments: Any) -> Compiled:
    """Compile a `@cute.jit` function that launches one `@cute.kernel`, for sm_100a.

    No GPU and no driver is needed. Lines of the kernel's source are kept, for findings.

    Args:
        function: decorated with `cute.jit`, or an object whose `__call__` is.
        arguments: a `placeholder` for each tensor, a number of the DSL (`cutlass.Int32(1)`) for
            each number, and the value of each `cutlass.Constexpr`.

    Raises:
        ModuleNotFoundError: the DSL is not installed.
    """
    cute = load()
    with tempfile.TemporaryDirectory(prefix="lethe-cute-") as folder:
        options = (
            f"--gpu-arch {ARCHITECTURE} --generate-line-info --keep-ptx --keep-cubin "
            f"--dump-dir {folder}"
        )
        host = cute.compile(function, *arguments, options=options)
        ptx, cubin = host.__ptx__, host.__cubin__
    given = inspect.signature(function).bind(*arguments)
    given.apply_defaults()
    passed = host.execution_args.signature.parameters
    return Compiled(
        host, ptx, cubin, tuple((n, v) for n, v in given.arguments.items() if n in passed)
    )
