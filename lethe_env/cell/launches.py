"""Every kernel launch becomes a record, and can be turned into a no-op."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.nvidia.compiler import CUDAOptions
from triton.compiler.compiler import CompiledKernel
from triton.compiler.errors import CompilationError
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction, KernelInterface, TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from .protocol import digest_of, dtype_name

RECORDS_PER_CALL = 256
_THREADS_PER_WARP = 32
_RECORDED_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_KNOWN_OPTIONS = {option.name for option in dataclasses.fields(CUDAOptions)}
_TRITON_DTYPES = {
    value.name: name for name, value in vars(tl).items() if isinstance(value, tl.dtype)
}

Record = dict[str, Any]


class LaunchLog:
    """The launches of the current call."""

    def __init__(self, note: Callable[[int], None]) -> None:
        self.count = 0
        self.mute = False
        self.quiet = False
        """Whether launches go straight to Triton: while many calls are timed."""
        self.tuned: list[str] | None = None
        """Parameters of the next launches that a tuner chooses among several configurations."""
        self._note = note
        self._records: dict[str, Record] = {}

    def start(self, mute: bool) -> None:
        """Forget the launches so far; begin a new call."""
        self.count = 0
        self.mute = mute
        self._records = {}
        self._note(0)

    def add(self, record: Record) -> Record:
        """Count a launch, and keep it unless it is known or there are too many.

        Returns:
            What is kept of launches like this.
        """
        self.count += 1
        self._note(self.count)
        key = json.dumps(record, sort_keys=True)
        if len(self._records) < RECORDS_PER_CALL:
            self._records.setdefault(key, record)
        return self._records.get(key, record)

    def take_back(self) -> None:
        """The last launch never began: its kernel does not compile. Its record stays."""
        self.count -= 1
        self._note(self.count)

    def known(self) -> set[str]:
        """What tells the records so far from later ones."""
        return set(self._records)

    def forget_all_but(self, known: set[str]) -> None:
        """Drop the records of launches that no device would make."""
        self._records = {key: self._records[key] for key in self._records if key in known}

    @contextmanager
    def chosen(self, names: Iterable[str]) -> Iterator[None]:
        """Launches inside are those of a tuner, which has chosen these parameters."""
        before, self.tuned = self.tuned, sorted(names)
        try:
            yield
        finally:
            self.tuned = before

    @property
    def records(self) -> list[Record]:
        """Distinct launches in order of first appearance."""
        return list(self._records.values())


def install(log: LaunchLog, check_pointer: Callable[[torch.Tensor], bool]) -> None:
    """Route every launch in this process through the log.

    Args:
        log: where launches are recorded.
        check_pointer: whether a tensor lies where a kernel can reach it.
    """
    for kind in (InterpretedFunction, JITFunction):
        kind.run = _recording(kind.run, log, check_pointer)


def _recording(
    run: Callable[..., Any], log: LaunchLog, check_pointer: Callable[[torch.Tensor], bool]
) -> Callable[..., Any]:
    def recorded(kernel: Any, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        if warmup or (log.quiet and isinstance(kernel, JITFunction)):
            return run(kernel, *args, grid=grid, warmup=warmup, **keywords)
        names = [*inspect.signature(kernel.fn).parameters]
        unknown = [name for name in keywords if name not in names and name not in _KNOWN_OPTIONS]
        if unknown:
            raise KeyError(
                f"Keyword argument {unknown[0]} was specified but unrecognised by the kernel "
                f"{kernel.fn.__name__}"
            )
        bound = bind(kernel.fn, args, keywords)
        if callable(grid):
            grid = grid(bound)
        grid = tuple(int(size) for size in grid)
        record = log.add(describe(kernel.fn, bound, keywords, grid) | {"tuned": log.tuned})
        for position, value in enumerate(bound.values()):
            if isinstance(value, torch.Tensor) and value.numel() and not check_pointer(value):
                raise ValueError(
                    f"Pointer argument (at {position}) cannot be accessed from Triton (cpu tensor?)"
                )
        if log.mute or 0 in grid:
            return None
        if isinstance(kernel, InterpretedFunction):
            with torch._C.DisableTorchFunction():
                return run(kernel, *args, grid=grid, warmup=False, **keywords)
        try:
            compiled = run(kernel, *args, grid=grid, warmup=False, **keywords)
        except CompilationError:
            log.take_back()
            raise
        if isinstance(compiled, CompiledKernel) and "compiled" not in record:
            record["compiled"] = _compiled(compiled)
        return compiled

    return recorded


def _compiled(kernel: CompiledKernel) -> dict[str, Any]:
    """JSON-ready description of what Triton has compiled, see `tasks.observation.Compiled`."""
    return {"ptx": digest_of(kernel.asm["ptx"]), **figures_of(kernel)}


def figures_of(kernel: CompiledKernel) -> dict[str, int]:
    """What Triton tells of a kernel that its PTX does not."""
    return {
        "shared_bytes": int(kernel.metadata.shared),
        "tensor_memory_columns": int(getattr(kernel.metadata, "tmem_size", None) or 0),
        "threads": int(kernel.metadata.num_warps) * _THREADS_PER_WARP,
    }


def bind(function: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict:
    """Arguments by parameter name, defaults applied, launch options left out.

    Raises:
        TypeError: they do not fit the kernel's signature.
    """
    signature = inspect.signature(function)
    own = {name: value for name, value in keywords.items() if name in signature.parameters}
    bound = signature.bind(*args, **own)
    bound.apply_defaults()
    return dict(bound.arguments)


def describe(
    function: Callable[..., Any],
    bound: Mapping[str, Any],
    keywords: Mapping[str, Any],
    grid: tuple[int, ...],
) -> Record:
    """JSON-ready description of one launch, see `tasks.observation.Launch`."""
    arguments = {name: _argument(value) for name, value in bound.items()}
    for name in constants(function) & arguments.keys():
        if "value" in arguments[name]:
            arguments[name] = {"constexpr": arguments[name]["value"]}
    return {
        "kernel": function.__name__,
        "arguments": arguments,
        "options": {
            name: keywords[name]
            for name in _RECORDED_OPTIONS
            if isinstance(keywords.get(name), int) and name not in bound
        },
        "grid": grid,
    }


@functools.cache
def constants(function: Callable[..., Any]) -> frozenset[str]:
    """Parameters of a kernel that are annotated as compile-time constants."""
    return frozenset(
        name
        for name, annotation in function.__annotations__.items()
        if annotation is tl.constexpr or (isinstance(annotation, str) and "constexpr" in annotation)
    )


def _argument(value: Any) -> dict[str, Any]:
    if isinstance(value, tl.constexpr):
        value = value.value
    match value:
        case torch.Tensor() | TensorWrapper():
            if isinstance(value.dtype, tl.dtype):
                return {"pointer": _TRITON_DTYPES.get(value.dtype.name, value.dtype.name)}
            return {"pointer": dtype_name(value.dtype)}
        case TensorDescriptor():
            return {
                "descriptor": dtype_name(value.base.dtype),
                "shape": [int(size) for size in value.shape],
                "strides": [int(stride) for stride in value.strides],
                "block_shape": [int(size) for size in value.block_shape],
            }
        case tl.dtype():
            return {"dtype": _TRITON_DTYPES.get(value.name, value.name)}
        case torch.dtype():
            return {"torch_dtype": dtype_name(value)}
        case None | bool() | int() | float() | str():
            return {"value": value}
        case tuple() | list():
            return {"tuple": [_argument(item) for item in value]}
        case KernelInterface() | triton.runtime.jit.JITCallable():
            return {"function": value.fn.__name__}
    return {"unknown": type(value).__name__}
