"""Compiled host functions, called with tensors of the CPU: their kernels run on the virtual GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_int32, c_void_p
from typing import Any

import torch

from ...kernels.cute_dsl import Compiled, load
from ...kernels.cute_dsl import placeholder as make_placeholder
from ..arguments import Argument
from ..cache import ObjectCache, Translate, ensure_linked
from ..machine import program
from ..machine.launch import Bytes
from ..machine.tensor_maps import MAP_BYTES
from ..memory import AddressSpace, Pointer
from ..ptx.model import Parameter
from ..session import LaunchError, Session
from .hardware_maps import converted
from .host_calls import HostCalls, Request
from .tensor_arguments import DeviceTensor, TensorType, tensor_type

_ADDRESS_BYTES = 8


class VirtualFunction:
    """A compiled host function; its launches are those of a session.

    The DSL's host code runs as it is: it computes grids, fills in tensor maps and packs
    parameters. What it would ask of the CUDA runtime, `HostCalls` answers. It sees the addresses
    that tensors have on the virtual GPU, never those that they have on this machine.
    """

    def __init__(
        self, compiled: Compiled, session: Session | None = None, translate: Translate | None = None
    ) -> None:
        """Translate the kernel and load the host code.

        Args:
            compiled: from `compile_host`.
            session: where launches are made; a fresh one by default.
            translate: from PTX to native code; by default in this process, kept on disk.

        Raises:
            UnsupportedError: the virtual GPU does not implement something in the kernel.
        """
        self.compiled = compiled
        self._types = tuple(_type(*parameter) for parameter in compiled.parameters)
        self.session = session or Session()
        ensure_linked()
        self._program = program.load(compiled.ptx, (translate or ObjectCache())(compiled.ptx))
        self._owners: Mapping[str, Pointer] = {}
        self.request: Request | None = None
        """The last launch that the host code asked for."""
        self._calls = HostCalls(self)
        self._engine = load("cutlass._mlir.execution_engine").ExecutionEngine(
            compiled.host.ir_module, opt_level=0
        )
        for name, callback in self._calls.callbacks.items():
            self._engine.raw_register_runtime(name, ctypes.cast(callback, c_void_p))
        self._load_kernel()

    @property
    def parameter_bytes(self) -> tuple[int, ...]:
        """Sizes of the kernel's parameters."""
        return tuple(parameter.size_bytes for parameter in self._program.kernel.parameters)

    @property
    def static_shared_bytes(self) -> int:
        """Of the kernel."""
        return self._program.static_shared_bytes

    def __call__(self, *arguments: torch.Tensor | int | float) -> None:
        """Run the host function, to the end of its launches.

        Args:
            arguments: a tensor of the CPU where the function was compiled with a fake one.

        Raises:
            ValueError: a tensor that the function was not compiled for.
            LaunchError: a kernel ended early.
        """
        types = self._types
        if len(arguments) != len(types):
            raise ValueError(f"{len(types)} arguments are expected, {len(arguments)} were given")
        memory = self.session.memory
        given = [
            value if type_ is None else DeviceTensor(type_, _tensor(type_.name, value), memory)
            for type_, value in zip(types, arguments, strict=True)
        ]
        tensors = [value for value in given if isinstance(value, DeviceTensor)]
        self._owners = {tensor.pointer.name: tensor.pointer for tensor in tensors}
        host = self.compiled.host
        places, kept = host.execution_args.generate_execution_args(tuple(given), {})
        self._invoke(f"_mlir_ciface_{host.function_name}", *places)
        del kept

    def launch(self, request: Request) -> None:
        """Run the kernel as the host function asks."""
        self.request = request
        function = self._program
        if request.block != (function.kernel.threads, 1, 1):
            raise LaunchError(
                f"a block of {request.block} threads; the kernel was compiled for "
                f"{function.kernel.threads}"
            )
        memory = self.session.memory
        arguments = [
            _argument(parameter, data, memory)
            for parameter, data in zip(function.kernel.parameters, request.parameters, strict=True)
        ]
        if 0 not in request.grid:
            self.session.launch(
                function, function.kernel.name, request.grid, arguments, request.shared_bytes,
                self._owners, request.cluster,
            )  # fmt: skip

    def _load_kernel(self) -> None:
        """Load the library and look up its kernel, as the DSL does before the first call."""
        library, device = c_void_p(), c_int32(0)
        place = c_void_p(ctypes.addressof(library))
        self._invoke("cuda_init", ctypes.addressof(place))
        self._invoke("cuda_load_to_device", ctypes.addressof(place), ctypes.addressof(device))

    def _invoke(self, name: str, *places: int | c_void_p) -> None:
        """Call a function of the host code: it takes places of its arguments and of its result."""
        result = c_int32(0)
        packed = (c_void_p * (len(places) + 1))(*places, ctypes.addressof(result))
        self._calls.error = None
        ctypes.CFUNCTYPE(None, c_void_p)(self._engine.raw_lookup(name))(packed)
        if self._calls.error is not None:
            raise self._calls.error
        if result.value:
            raise LaunchError(f"the host function ended with CUDA error {result.value}")


def _type(name: str, placeholder: Any) -> TensorType | None:
    fake = type(make_placeholder("Int8", 1))
    return tensor_type(name, placeholder) if isinstance(placeholder, fake) else None


def _tensor(name: str, value: Any) -> torch.Tensor:
    # A process that plays a GPU has tensors say that they lie there; their storage does not.
    if not isinstance(value, torch.Tensor) or value.untyped_storage().device.type != "cpu":
        raise ValueError(f"{name} has to be a tensor of the CPU")
    return value


def _argument(parameter: Parameter, data: bytes, memory: AddressSpace) -> Argument:
    """A kernel parameter, with the address in it: a tensor begins with its own."""
    if len(data) == MAP_BYTES:
        return Bytes(*converted(data))
    if len(data) < _ADDRESS_BYTES:
        bits = parameter.type == "b8" or parameter.type.startswith("f")
        return Bytes(data, 0) if bits else int.from_bytes(data, "little")
    address = int.from_bytes(data[:_ADDRESS_BYTES], "little")
    return Bytes(data, address if memory.locate(address) else 0)
