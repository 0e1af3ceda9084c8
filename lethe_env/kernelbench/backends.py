"""Backends: which candidates this machine can run, judged by what their source asks for."""

from __future__ import annotations

import ast
import importlib.util

BACKENDS = ("cuda", "triton", "tilelang", "cute", "thunderkittens", "hip")
"""Those of KernelBench; a name that is none of them is taken for `cuda`, as there."""

_COMPILING = ("cpp_extension", "cupy", "pycuda", "cuda", "hip", "tilelang", "thunderkittens")
"""Modules that start a compiler or load native code."""


def missing(source: str, *, device: str) -> str:
    """Why this machine cannot run a candidate, or nothing if it can.

    The source decides, not the name of the backend: a kernel in plain PyTorch runs under any.

    Args:
        source: the candidate.
        device: `cuda`, `vgpu` or `interpreter`.
    """
    modules = _imports(source)
    for module in _COMPILING:
        if module in modules:
            return (
                f"it has native code compiled or loaded through {module}, and a cell starts no "
                "compiler, since what such code does could not be confined"
            )
    if "cutlass" not in modules:
        return ""
    if device != "cuda":
        return f"it needs a GPU for its CuTe kernels, and the device here is {device}"
    if importlib.util.find_spec("cutlass") is None:
        return "it needs the package nvidia-cutlass-dsl, which is not installed"
    return ""


def _imports(source: str) -> set[str]:
    """Top-level names of all imported packages, and `cpp_extension` however it is reached."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            names = [f"torch.utils.{node.attr}"] if isinstance(node, ast.Attribute) else []
        found |= {name.partition(".")[0] for name in names}
        found |= {"cpp_extension" for name in names if "cpp_extension" in name.split(".")}
    return found
