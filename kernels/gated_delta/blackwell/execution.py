"""Where native stages run: on the virtual GPU where Triton's kernels do, else on a Blackwell."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton

from ...cute_dsl import Compiled, load
from .compilation import BACKWARD
from .native_stages import Run

CAPABILITY = (10, 0)
"""The only compute capability that code for sm_100a runs on."""


class Stages(NamedTuple):
    """What runs each stage, all for one width of values."""

    output_adjoint: Run
    reverse_state_scan: Run
    transform_adjoint: Run
    state_gradients: Run


def stages_for(value_dim: int) -> Stages:
    """All stages; see `executable`."""
    return Stages(*(executable(compile_stage, value_dim) for compile_stage in BACKWARD))


def executable(compile_stage: Callable[[int], Compiled], value_dim: int) -> Run:
    """What runs a stage for so many value channels where Triton's kernels run.

    That is Triton's device: the virtual GPU if `VirtualDriver` is active, else the current GPU.

    Args:
        compile_stage: Of `compilation.py`; called once for each width.
        value_dim: One of `compilation.VALUES`.

    Raises:
        ModuleNotFoundError: The DSL is not installed; says how to.
        RuntimeError: The GPU is none of compute capability 10.0.
    """
    compiled = _compiled(compile_stage, value_dim)
    host_function = getattr(triton.runtime.driver.active, "host_function", None)
    if host_function is not None:
        return host_function(compiled)
    return functools.partial(_run_on_gpu, compiled)


@functools.cache
def _compiled(compile_stage: Callable[[int], Compiled], value_dim: int) -> Compiled:
    return compile_stage(value_dim)


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
    compiled.host(*map(as_argument, arguments))
    current.wait_stream(default)


def as_argument(value: Any) -> Any:
    """A tensor, or a number, as a host function compiled with a `placeholder` takes it."""
    if not isinstance(value, torch.Tensor):
        return load("cutlass").Int32(value)
    tensor = load("cutlass.cute.runtime").from_dlpack(value.detach(), assumed_align=16)
    return tensor.mark_compact_shape_dynamic(0, stride_order=tuple(range(value.dim())))
