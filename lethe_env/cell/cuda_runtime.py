"""Stand-ins for `torch.cuda` and Triton's driver where there is no CUDA.

The figures are those of `claims`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from ..vgpu.timing import DEFAULT_ARCHITECTURE
from .claims import device_properties, driver_properties
from .cuda_stand_in import DEVICE, HOST, mark, set_default_device


class Stream:
    """A stream on which everything has already happened."""

    cuda_stream = 0
    device = DEVICE
    device_index = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None: ...

    def synchronize(self) -> None:
        """Nothing to wait for."""

    wait_stream = wait_event = lambda self, *_: None

    def query(self) -> bool:
        """All work is done."""
        return True

    def record_event(self, event: Event | None = None) -> Event:
        """An event in the past."""
        return event or Event()


class Event:
    """An event that has already happened."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    record = wait = synchronize = lambda self, *_: None

    def query(self) -> bool:
        """It has happened."""
        return True

    def elapsed_time(self, end: Event) -> float:
        """One millisecond: a candidate gets no clock from the device."""
        return 1.0


class Driver:
    """What `triton.runtime.driver.active` answers."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target
        self.utils = SimpleNamespace(
            get_device_properties=lambda device=0: driver_properties(target.arch)
        )

    def get_current_target(self) -> GPUTarget:
        """The target that kernels are compiled for."""
        return self._target

    def get_current_device(self) -> int:
        """The only device; numbered by target, so that compiled kernels are kept apart."""
        return 0 if self._target.arch == DEFAULT_ARCHITECTURE else self._target.arch

    def set_current_device(self, device: int) -> None:
        """There is only one."""

    def get_current_stream(self, device: int | None = None) -> int:
        """The default stream."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """The only device, as torch names it."""
        return DEVICE

    def get_device_interface(self) -> Any:
        """The torch module of the device."""
        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """A small buffer: there is no cache to flush."""
        return torch.zeros(1, dtype=torch.int32)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """There is no cache to flush."""

    def map_python_to_cpp_type(self, kind: str) -> str:
        """Not used without launching."""
        return kind


@contextmanager
def _nothing(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def install_driver(architecture: int = DEFAULT_ARCHITECTURE) -> None:
    """Give Triton a driver for a device of this architecture (80 for compute capability 8.0)."""
    triton.runtime.driver.set_active(Driver(GPUTarget("cuda", architecture, 32)))


def install_runtime(architecture: int = DEFAULT_ARCHITECTURE) -> None:
    """Make `torch.cuda` in this process answer as if there were one GPU of this architecture."""
    stream, claimed = Stream(), device_properties(architecture)
    replacements: dict[str, Any] = {
        "is_available": _constant(True),
        "is_initialized": _constant(True),
        "is_bf16_supported": _constant(True),
        "device_count": _constant(1),
        "current_device": _constant(0),
        "get_device_name": _constant(claimed.name),
        "get_device_capability": _constant((claimed.major, claimed.minor)),
        "get_device_properties": _constant(claimed),
        "get_arch_list": _constant(["sm_80", "sm_90", "sm_100"]),
        "current_stream": _constant(stream),
        "default_stream": _constant(stream),
        "mem_get_info": _constant((claimed.total_memory, claimed.total_memory)),
        "Stream": Stream,
        "Event": Event,
        "device": _nothing,
        "device_of": _nothing,
        "stream": _nothing,
    }
    for name in ("synchronize", "set_device", "set_stream", "empty_cache", "init", "_lazy_init"):
        replacements[name] = _constant(None)
    for name in ("reset_peak_memory_stats", "manual_seed", "manual_seed_all", "ipc_collect"):
        replacements[name] = _constant(None)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        replacements[name] = _constant(0)
    for name, value in replacements.items():
        setattr(torch.cuda, name, value)
    _replace_constructors()


def _replace_constructors() -> None:
    real_from_numpy = torch.from_numpy

    def from_numpy(array: Any) -> torch.Tensor:
        tensor = real_from_numpy(array)
        mark(tensor, True)
        return tensor

    torch.Generator = _Generator  # type: ignore[misc]
    torch.from_numpy = from_numpy
    torch.set_default_device = set_default_device
    torch.compile = _uncompiled


class _Generator(torch.Generator):
    """A generator on whatever device: they all draw the CPU's numbers."""

    def __new__(cls, device: Any = HOST) -> _Generator:
        return super().__new__(cls, HOST)


def _uncompiled(model: Any = None, **_: Any) -> Any:
    """`torch.compile` promises the same results; there is no compiler in a cell."""
    return model if model is not None else lambda function: function
