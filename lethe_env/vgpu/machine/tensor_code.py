"""Functions of tensor cores and other units: an object that only kernels with such units link."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from . import dispatch, phases, shared_code, tensor_memory, tensor_products, warpgroups
from .emit import Module, Writer
from .native import NativeCode, compile_object, define_symbol
from .units import Kind, Operation
from .values import Value, i64

_LINKED: list[NativeCode] = []


@cache
def _module() -> Module:
    module = Module(shared_code.declarations())
    phases.write_all(module)
    tensor_memory.write_all(module)
    for source in warpgroups.SOURCES.values():
        warpgroups.write_worker(module, source)
    products = tensor_products.workers(module)

    def multiply(writer: Writer, context: Value, operation: Value) -> None:
        number = writer.both(writer.read(operation, Operation, "sources"), 0xFF)
        for source, name in products.items():
            with writer.when(writer.compare("eq", number, source)):
                writer.call("void", name, context, operation)

    tensor_products.looker(module)
    dispatch.write_queue(module, {Kind.PRODUCT: multiply, Kind.ARRIVE: _arrive})
    return module


def _arrive(writer: Writer, context: Value, operation: Value) -> None:
    offset = writer.resize(writer.read(operation, Operation, "barrier"), "i64")
    site = writer.read(operation, Operation, "site")
    writer.call("i64", phases.arriver(writer.module), context, offset, i64(1), i64(0), site)


@cache
def text() -> str:
    """LLVM IR of the functions, each visible from outside."""
    module = _module()
    return shared_code.visible(module.declarations, module.functions)


@cache
def declarations() -> Mapping[str, str]:
    """By name, how a kernel's module declares each of the functions."""
    return shared_code.declared(_module().functions)


def compile_units() -> bytes:
    """The object that `link` takes."""
    return compile_object(text(), optimise=True)


def link(object_bytes: bytes) -> None:
    """Make the functions known to all kernels that this process loads from now on."""
    shared_code.ensure_linked()
    code = NativeCode(object_bytes)
    _LINKED.append(code)
    for name in declarations():
        define_symbol(name, code.address(name))


def ensure_linked() -> None:
    """Compile and link the functions unless this process has them."""
    if not _LINKED:
        link(compile_units())
