"""Where native stages run: on the virtual GPU where Triton's kernels do, else on a Blackwell."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton

from ...cute_dsl import Compiled, load
from . import compilation
from .native_stages import Run

CAPABILITY = (10, 0)
"""The only compute capability that code for sm_100a runs on."""


class Stages(NamedTuple):
    """What runs each stage, all for one width of values."""

    output_adjoint: Run
    reverse_state_scan: Run
    transform_adjoint: Run | None
    """None if nothing is erased."""
    token_gradients: Run


def stages_for(value_dim: int, *, decays: bool, erases: bool) -> Stages:
    """All stages of a member that has decays or not, and erases or not; see `executable`."""
    return Stages(
        executable(compilation.compile_output_adjoint, value_dim),
        executable(compilation.compile_reverse_state_scan, value_dim),
        executable(compilation.compile_transform_adjoint, value_dim) if erases else None,
        executable(compilation.compile_token_gradients, value_dim, decays, erases),
    )


def executable(compile_stage: Callable[..., Compiled], value_dim: int, *has: bool) -> Run:
    """What runs a stage for so many value channels where Triton's kernels run.

    That is Triton's device: the virtual GPU if `VirtualDriver` is active, else the current GPU.

    Args:
        compile_stage: Of `compilation.py`.
        value_dim: One of `compilation.VALUES`.
        has: What else the function takes.

    Raises:
        ModuleNotFoundError: The DSL is not installed; says how to.
        RuntimeError: The GPU is none of compute capability 10.0.
    """
    return _running(compiled_once(compile_stage, value_dim, *has))


def compiled_once(compile_stage: Callable[..., Compiled], value_dim: int, *has: bool) -> Compiled:
    """What a stage is compiled to, arguments as of `executable`."""
    key = compile_stage, value_dim, has
    if key not in _COMPILED:
        _COMPILED[key] = compile_stage(value_dim, *has)
    return _COMPILED[key]


def compiled_stages() -> list[tuple[str, int, Run]]:
    """All stages that have been compiled so far: name, value channels, and what runs it."""
    return [
        (compile_stage.__name__.removeprefix("compile_"), value_dim, _running(compiled))
        for (compile_stage, value_dim, _), compiled in _COMPILED.items()
    ]


_COMPILED: dict[tuple[Callable[..., Compiled], int, tuple[bool, ...]], Compiled] = {}


def _running(compiled: Compiled) -> Run:
    host_function = getattr(triton.runtime.driver.active, "host_function", None)
    if host_function is not None:
        return host_function(compiled)
    return functools.partial(_run_on_gpu, compiled)


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
    types = (type_ for _, type_ in compiled.parameters)
    compiled.host(*map(as_argument, types, arguments))
    current.wait_stream(default)


def as_argument(type_: Any, value: Any) -> Any:
    """A tensor, or a number, as a host function takes it.

    Args:
        type_: What the function was compiled with: a `placeholder`, or a number of the DSL.
        value: What it gets.
    """
    if not isinstance(value, torch.Tensor):
        return type(type_)(value)
    load()
    tensor = load("cutlass.cute.runtime").from_dlpack(
        value.detach(), assumed_align=type_._assumed_align
    )
    for axis, length in enumerate(type_.shape):
        if not isinstance(length, int):
            order = tuple(range(value.dim()))
            tensor = tensor.mark_compact_shape_dynamic(axis, stride_order=order)
    return tensor
