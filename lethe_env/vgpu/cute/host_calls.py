"""The CUDA runtime as a compiled host function of the DSL calls it: a handful of C functions.

The DSL lowers a host function to native code that calls these by name, usually in a library of
NVIDIA's. Here they are functions of Python, which an execution engine of the DSL's own takes in
their place, so that code runs as it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import c_int32, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, Protocol

from ..ptx.model import UnsupportedError

SHARED_MEMORY_BYTES = 232448
"""Most shared memory that a block may ask for, of compute capability 10.0."""
_SUCCESS, _UNKNOWN_ERROR = 0, 999
_LIBRARY, _KERNEL = 1, 2
"""Handles: a host function has one library, with one kernel."""
_SHARED_BYTES_OF_DEVICE = 97
"""`cudaDevAttrMaxSharedMemoryPerBlockOptin`."""
_SHARED_BYTES_OF_KERNEL = 1
"""`CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES`: what is allocated statically."""
_CLUSTER = 4
"""`cudaLaunchAttributeClusterDimension`; what other attributes ask for changes no result."""


class _Attribute(ctypes.Structure):
    _fields_ = (
        ("number", c_uint32),
        ("padding", c_uint8 * 4),
        ("value", c_uint32 * 16),
    )


class _Configuration(ctypes.Structure):
    """`cudaLaunchConfig_t`."""

    _fields_ = (
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("shared_bytes", c_uint64),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint32),
    )


@dataclass(frozen=True, slots=True)
class Request:
    """A launch that a host function asks for."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    parameters: tuple[bytes, ...]
    """As the kernel gets them, in order."""
    cluster: tuple[int, int, int] | None = None
    """Blocks per cluster, if the host function says."""


class Device(Protocol):
    """What launches come down to."""

    @property
    def parameter_bytes(self) -> tuple[int, ...]:
        """Sizes of the kernel's parameters."""

    @property
    def static_shared_bytes(self) -> int:
        """Of the kernel."""

    def launch(self, request: Request) -> None:
        """Run the kernel."""


class HostCalls:
    """The functions for one host function, by the names it calls them.

    No exception can pass through native code: the first one is kept in `error`, and the host
    function is told that a call has failed.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self.error: BaseException | None = None
        self.callbacks: Mapping[str, Any] = {
            name: self._guarded(function, types) for name, (function, types) in self._table()
        }
        """C functions; whoever calls them has to keep this object."""

    def _table(self) -> list[tuple[str, tuple[Callable[..., None], tuple[Any, ...]]]]:
        pointer, number = c_void_p, c_int32
        return [
            ("_cudaGetDevice", (_write_zero, (pointer,))),
            ("_cudaDeviceGetAttribute", (self._device_attribute, (pointer, number, number))),
            ("_cudaLibraryLoadData", (self._load, (pointer,) * 4 + (number,) + (pointer,) * 2
                                      + (number,))),
            ("_cudaLibraryGetKernel", (self._kernel, (pointer,) * 3)),
            ("_cuKernelGetAttribute", (self._kernel_attribute, (pointer, number, pointer, number))),
            ("_cudaFuncSetAttribute", (_ignore, (pointer, number, number))),
            ("_cudaKernelSetAttributeForDevice", (_ignore, (pointer, number, number, number))),
            ("_cudaLaunchKernelEx", (self._launch, (pointer,) * 3)),
            ("_cudaLaunchKernel", (_refuse, (pointer,) + (number,) * 6
                                   + (pointer, c_int64, pointer))),
            ("_cudaOccupancyMaxActiveBlocksPerMultiprocessor",
             (_refuse, (pointer, pointer, number, c_int64))),
        ]  # fmt: skip

    def _guarded(self, function: Callable[..., None], types: tuple[Any, ...]) -> Any:
        def call(*arguments: Any) -> int:
            try:
                function(*arguments)
            except BaseException as error:  # noqa: BLE001 - raised again by whoever called
                self.error = self.error or error
                return _UNKNOWN_ERROR
            return _SUCCESS

        return ctypes.CFUNCTYPE(c_int32, *types)(call)

    def _device_attribute(self, target: int, attribute: int, device: int) -> None:
        if attribute != _SHARED_BYTES_OF_DEVICE:
            raise UnsupportedError(f"the host function asks for device attribute {attribute}")
        c_int32.from_address(target).value = SHARED_MEMORY_BYTES

    def _kernel_attribute(self, target: int, attribute: int, kernel: int, device: int) -> None:
        if attribute != _SHARED_BYTES_OF_KERNEL:
            raise UnsupportedError(f"the host function asks for kernel attribute {attribute}")
        c_int32.from_address(target).value = self._device.static_shared_bytes

    def _load(self, target: int, *_: Any) -> None:
        c_void_p.from_address(target).value = _LIBRARY

    def _kernel(self, target: int, library: int, name: int) -> None:
        c_void_p.from_address(target).value = _KERNEL

    def _launch(self, configuration: int, kernel: int, arguments: int) -> None:
        found = _Configuration.from_address(configuration)
        attributes = (_Attribute * found.attribute_count).from_address(found.attributes or 0)
        clusters = [
            (a.value[0], a.value[1], a.value[2]) for a in attributes if a.number == _CLUSTER
        ]
        places = (c_void_p * len(self._device.parameter_bytes)).from_address(arguments)
        sizes = zip(places, self._device.parameter_bytes, strict=True)
        self._device.launch(
            Request(
                grid=tuple(found.grid),
                block=tuple(found.block),
                shared_bytes=int(found.shared_bytes),
                parameters=tuple(ctypes.string_at(place, size) for place, size in sizes),
                cluster=clusters[-1] if clusters else None,
            )
        )


def _write_zero(target: int) -> None:
    """The only device is the first."""
    c_int32.from_address(target).value = 0


def _ignore(*_: Any) -> None:
    """Attributes of kernels, such as how much shared memory they may use, limit nothing here."""


def _refuse(*_: Any) -> None:
    raise UnsupportedError("a call of the CUDA runtime that no host function was seen to make")
