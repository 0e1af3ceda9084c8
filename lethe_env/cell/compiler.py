"""Ahead-of-time compiling in a cell: from a launch record to PTX. It needs no process."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import triton.language as tl
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler.errors import CompilationError
from triton.runtime.jit import JITFunction, MockTensor
from triton.tools.tensor_descriptor import TensorDescriptor

from . import faults, loader
from .conversation import Answer, serve
from .cuda_runtime import install_driver
from .device import InterpreterDevice
from .launches import figures_of
from .protocol import DTYPES


def _prepared_kernels() -> dict[str, JITFunction]:
    """Kernels of ours that were imported before this process was forked, for sources of ours."""
    root = f"{__package__.partition('.')[0]}.kernels."
    return {
        kernel.__name__: kernel
        for name, module in list(sys.modules.items())
        if name.startswith(root)
        for kernel in vars(module).values()
        if isinstance(kernel, JITFunction)
    }


class Compiler:
    """Serves one candidate until the judge closes the channel."""

    def __init__(self, channel: socket.socket, folder: Path) -> None:
        self._channel = channel
        self._folder = folder
        self._source = ""
        self._module: ModuleType | None = None
        self._kernels = _prepared_kernels()
        self._hoisted: set[str] = set()
        self._device = InterpreterDevice()

    def serve(self) -> None:
        """Answer requests one after the other."""
        CUDABackend.make_cubin = lambda *_: b""  # assembling takes a process; see `assembler`
        self._remember_kernels()
        work = {"load": self._load, "compile": self._compile}
        serve(self._channel, {name: explained(do) for name, do in work.items()})

    def _remember_kernels(self) -> None:
        initialise, kernels = JITFunction.__init__, self._kernels

        def remembering(kernel: JITFunction, function: Any, *args: Any, **keywords: Any) -> None:
            initialise(kernel, function, *args, **keywords)
            kernels[function.__name__] = kernel

        JITFunction.__init__ = remembering

    def _load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._source = request["source"]
        with self._device.active():
            self._module = loader.load(loader.write_source(self._source, self._folder))
        return {}

    def _compile(self, request: Mapping[str, Any]) -> dict[str, Any]:
        launch, name = request["launch"], request["launch"]["kernel"]
        if name not in self._kernels and (refusal := self._hoist(name)):
            return refusal
        try:
            return self._compiled(self._kernels[name], launch, request["target"])
        except CompilationError as error:
            if name not in self._hoisted:
                raise
            return {"unknown": f"{name} is made inside a function: {sentence(error)}"}

    def _hoist(self, name: str) -> dict[str, Any]:
        """Make a kernel that the source defines inside a function; the answer if that is no use."""
        found = loader.definitions(self._source, name)
        if self._module is None or not found:
            return {"error": f"the source defines no function {name}"}
        if len(found) > 1:
            return {"unknown": f"{len(found)} functions are called {name}"}
        loader.hoist(self._module, found[0])
        self._hoisted.add(name)
        return {}

    def _compiled(
        self, kernel: JITFunction, launch: Mapping[str, Any], target: str
    ) -> dict[str, Any]:
        architecture = int(target.removeprefix("sm_"))
        install_driver(architecture)
        arguments = {name: self._argument(item) for name, item in launch["arguments"].items()}
        compiled = kernel.warmup(grid=(1,), **arguments, **launch["options"])
        return {"ptx": compiled.asm["ptx"], **figures_of(compiled)}

    def _argument(self, item: Mapping[str, Any]) -> Any:
        match dict(item):
            case {"pointer": dtype}:
                return MockTensor(_pointee(dtype))
            case {"value": value} | {"constexpr": value}:
                return value
            case {"dtype": name}:
                return getattr(tl, name)
            case {"torch_dtype": name}:
                return DTYPES[name]
            case {"tuple": items}:
                return tuple(self._argument(inner) for inner in items)
            case {"function": name}:
                return self._kernels[name]
            case {"descriptor": dtype, "shape": shape, "strides": strides, "block_shape": block}:
                base = MockTensor(DTYPES[dtype], shape)
                return TensorDescriptor(base, shape, strides, block)
        raise TypeError(f"an argument of this kind cannot be described: {dict(item)}")


def explained(work: Answer) -> Answer:
    """The same answer, with any exception turned into its `error`."""

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return work(request)
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt too
            return {"error": sentence(error)}

    return answer


def sentence(error: BaseException) -> str:
    """Why there is no kernel, in one sentence."""
    text = str(error)
    if isinstance(error, CompilationError):
        text = f"the kernel does not compile: {faults.compile_message(error)}"
    else:
        text = f"{type(error).__name__}: {text}"
    return " ".join(text.split())[: faults.MESSAGE_CHARACTERS]


def _pointee(name: str) -> Any:
    return DTYPES[name] if name in DTYPES else getattr(tl, name)
