"""Where native stages run: on the virtual GPU where Triton's kernels do, else on a Blackwell."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import triton

from ...cute_dsl import Compiled, load
from .native_stages import Run

CAPABILITY = (10, 0)
"""The only compute capability that code for sm_100a runs on."""
_COMPILED: dict[tuple[Callable[..., Compiled], tuple[Any, ...]], Compiled] = {}


def executable(compile_stage: Callable[..., Compiled], *arguments: Any) -> Run:
    """What runs a stage where Triton's kernels run.

    That is Triton's device: the virtual GPU if `VirtualDriver` is active, else the current GPU.

    Args:
        compile_stage: Of `compilation.py`.
        arguments: What it is called with.

    Raises:
        ModuleNotFoundError: The DSL is not installed; says how to.
        RuntimeError: The GPU is none of compute capability 10.0.
    """
    compiled = compiled_once(compile_stage, *arguments)
    host_function = getattr(triton.runtime.driver.active, "host_function", None)
    if host_function is not None:
        return host_function(compiled)
    return functools.partial(_run_on_gpu, compiled)


def known_stages() -> tuple[tuple[Callable[..., Compiled], tuple[Any, ...]], ...]:
    """What `executable` has been called with in this process, each once."""
    return tuple(_COMPILED)


def compiled_once(compile_stage: Callable[..., Compiled], *arguments: Any) -> Compiled:
    """What a stage is compiled to, arguments as of `executable`."""
    key = compile_stage, arguments
    if key not in _COMPILED:
        _COMPILED[key] = compile_stage(*arguments)
    return _COMPILED[key]


def _run_on_gpu(compiled: Compiled, *arguments: Any) -> None:
    """Call the host function, which launches on the default stream."""
    found = torch.cuda.get_device_capability()
    if found != CAPABILITY:
        raise RuntimeError(
            f"native stages run on GPUs of compute capability 10.0, and this one has "
            f"{found[0]}.{found[1]}; leave out backward=natively, or make the virtual GPU Triton's "
            "device: lethe_env.vgpu.driver.VirtualDriver().activate()"
        )
    default, current = torch.cuda.default_stream(), torch.cuda.current_stream()
    default.wait_stream(current)
    placeholders = (given for _, given in compiled.parameters)
    compiled.host(*map(as_argument, placeholders, arguments))
    current.wait_stream(default)


def as_argument(given: Any, value: Any) -> Any:
    """A tensor, or a number, as a host function takes it.

    Args:
        given: What the function was compiled with: a `placeholder`, or a number of the DSL.
        value: What it gets.
    """
    if not isinstance(value, torch.Tensor):
        return type(given)(value)
    align_bytes = given._assumed_align
    tensor = load("cutlass.cute.runtime").from_dlpack(value.detach(), assumed_align=align_bytes)
    for mode, length in enumerate(given.shape):
        if not isinstance(length, int):
            tensor = tensor.mark_compact_shape_dynamic(
                mode, stride_order=tuple(range(value.dim())), divisibility=length.divisibility
            )
    return tensor
