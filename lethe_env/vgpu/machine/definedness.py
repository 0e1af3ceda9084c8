"""Reads of what nobody has written.

Definedness is a map in the shape of the memory: one byte per byte, 1 once it has been written.
"""

from __future__ import annotations

from .emit import Module, Writer
from .host_access import reader, result_types, writer_of
from .layout import Site
from .values import Value, constant, i64, struct_type, vector
from .windows import UNINITIALISED_READ, Access, host_addresses, report


def check(writer: Writer, access: Access, width: int, count: int) -> None:
    """Report lanes that read what is not written, within one window."""
    with writer.when(writer.compare("ne", writer.read(access.window, Site, "defined"), 0)):
        checker = _checker(writer.module, width, count)
        writer.call("void", checker, *access.values())


def mark(writer: Writer, access: Access, width: int, count: int, defined: bool) -> None:
    """Note that what an access covers is written, or that it is not to be read."""
    with writer.when(writer.compare("ne", writer.read(access.window, Site, "defined"), 0)):
        places = host_addresses(writer, access, "defined")
        values = [_all_defined(width) if defined else constant(vector(f"i{width}"), 0)] * count
        write = writer_of(writer.module, width, count)
        writer.call("void", write, places, access.mask, *values)


def _all_defined(width: int) -> Value:
    return constant(vector(f"i{width}"), int.from_bytes(b"\1" * (width // 8), "little"))


def _checker(module: Module, width: int, count: int) -> str:
    types = result_types(width, count)

    def build(writer: Writer, *parameters: Value) -> None:
        access = Access(*parameters)
        places = host_addresses(writer, access, "defined")
        good = _all_defined(width)
        read = reader(module, width, count)
        found = writer.call(struct_type(types), read, places, access.mask, *[good] * count)
        bad = constant(vector("i1"), 0)
        for value in writer.unpack(found, types):
            bad = writer.either(bad, writer.compare("ne", value, good))
        lanes = writer.bits(writer.both(bad, access.mask))
        with writer.when(writer.compare("ne", lanes, 0)):
            report(writer, access, UNINITIALISED_READ, lanes, i64(0))
        writer.give()

    name = f"shadow.defined.{width}x{count}"
    return module.function(name, "void", Access.parameters(), build)
