"""Functions of tensor cores and other units: an object that only kernels for newer GPUs link."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ..alu import mma
from ..alu.accumulation import HOPPER, accumulation_of
from ..ptx.model import Kernel
from . import (
    async_stores,
    dispatch,
    groups,
    launch_control,
    phase_actions,
    shared_code,
    tensor_allocation,
    tensor_jobs,
    tensor_memory,
    tile_copies,
    tile_reductions,
    warpgroups,
)
from .bulk_copies import PAIRED
from .cluster_memory import each_home, rank_bit
from .emit import Module, Writer
from .native import Effort, NativeCode, compile_object, define_symbol
from .units import Kind, Operation, uses_units
from .values import Value, i64

_LINKED: list[NativeCode] = []


@cache
def _module() -> Module:
    module = Module(shared_code.declarations())
    phase_actions.write_all(module)
    tensor_memory.write_all(module)
    tensor_allocation.write_all(module)
    for source in warpgroups.SOURCES.values():
        warpgroups.write_worker(module, source)
    products = tensor_jobs.workers(module)

    def multiply(writer: Writer, context: Value, operation: Value) -> None:
        number = writer.both(writer.read(operation, Operation, "sources"), 0xFF)
        for source, name in products.items():
            with writer.when(writer.compare("eq", number, source)):
                writer.call("void", name, context, operation)

    tensor_jobs.looker(module)
    works: dict[Kind, dispatch.Work] = {Kind.PRODUCT: multiply, Kind.ARRIVE: _arrive}
    for kind, finish in ((Kind.LOAD, _count_bytes), (Kind.STORE, _nothing)):
        works[kind] = _calls(tile_copies.copier(module, kind, finish, None))
    reduce = tile_copies.copier(module, Kind.REDUCE, _nothing, tile_reductions.update)
    works[Kind.REDUCE] = _calls(reduce)
    works[Kind.FACTORS] = warpgroups.look_again
    works[Kind.CANCEL] = launch_control.answer
    works[Kind.PUT] = async_stores.put
    dispatch.write_queue(module, works)
    tile_copies.claimer(module)
    groups.write_all(module)
    for product, *_ in shared_code.PRODUCTS:
        definition = mma.define(("mma", "sync", "aligned", *product.split(".")), HOPPER)
        module.add_text(definition.name, definition.ir)
    return module


def _calls(name: str) -> dispatch.Work:
    return lambda writer, context, operation: writer.call("void", name, context, operation)


def _nothing(writer: Writer, context: Value, operation: Value, size: Value, rank: Value) -> None:
    """A store ends without a word."""


def _count_bytes(
    writer: Writer, context: Value, operation: Value, size: Value, rank: Value
) -> None:
    """A load tells a barrier how many bytes have come: in the block that it went to, or its pair.

    Of a pair, the first or the second is told, as the instruction's own address of the barrier is.
    """
    site = writer.read(operation, Operation, "site")
    offset = writer.resize(writer.read(operation, Operation, "barrier"), "i64")
    flags = writer.read(operation, Operation, "flags")
    paired = writer.compare("ne", writer.both(flags, PAIRED), 0)
    parity = writer.both(flags, 1)
    home = writer.select(paired, writer.either(writer.both(rank, ~1), parity), rank)
    with each_home(writer, context, rank_bit(writer, home)) as (_, own):
        come = writer.sub(i64(0), size)
        name = phase_actions.arriver(writer.module)
        writer.call("i64", name, context, own, offset, i64(0), come, site)


def _arrive(writer: Writer, context: Value, operation: Value) -> None:
    offset = writer.resize(writer.read(operation, Operation, "barrier"), "i64")
    site = writer.read(operation, Operation, "site")
    # Triton takes barriers away that only a later one will wait for.
    name = phase_actions.arriver(writer.module, quiet=True)
    homes = writer.read(operation, Operation, "homes")
    with each_home(writer, context, homes) as (_, home):
        writer.call("i64", name, context, home, offset, i64(1), i64(0), site)


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
    return compile_object(text(), Effort.MUCH)


def serves(kernel: Kernel) -> bool:
    """Whether a kernel may call one of the functions."""
    multiplies = any(instruction.opcode[0] == "mma" for instruction in kernel.body)
    return uses_units(kernel) or (multiplies and accumulation_of(kernel.target) is HOPPER)


def link(object_bytes: bytes) -> None:
    """Make the functions known to all kernels that this process loads from now on."""
    shared_code.ensure_linked()
    code = NativeCode(object_bytes)
    _LINKED.append(code)
    for name in declarations():
        define_symbol(name, code.address(name))


def is_linked() -> bool:
    """Whether this process has the functions."""
    return bool(_LINKED)


def ensure_linked() -> None:
    """Compile and link the functions unless this process has them."""
    if not _LINKED:
        link(compile_units())
