"""Loads and stores of a warp as functions: bounds, sanitizers, data, counts."""

from __future__ import annotations

from . import shadow
from .counts import count_access
from .emit import Module, Writer
from .host_access import reader, result_types, writer_of
from .values import Value, constant, struct_type
from .windows import Access, each_window, host_addresses

POISON = -1
"""Bits that a load outside its allocation gives, in every byte 0xFF."""


def loader(module: Module, width: int, count: int, ordered: bool = False) -> str:
    """`load(access…, old…) -> values`: lanes that are off keep `old`.

    `ordered` loads are volatile, relaxed or acquiring, and do not race with atomic operations.
    """
    types = result_types(width, count)
    size_bytes = width * count // 8
    touch = shadow.Touch.ATOMIC_READ if ordered else shadow.Touch.READ

    def build(writer: Writer, *parameters: Value) -> None:
        access, old = Access(*parameters[:5]), parameters[5:]
        poison = [
            writer.select(access.mask, constant(type_, POISON), value)
            for type_, value in zip(types, old, strict=True)
        ]
        results = [writer.variable(value) for value in poison]
        with each_window(writer, access, size_bytes) as here:
            shadow.before_load(writer, here, width, count, touch)
            current = [
                writer.load(type_, place) for type_, place in zip(types, results, strict=True)
            ]
            places = host_addresses(writer, here)
            read = reader(module, width, count)
            loaded = writer.call(struct_type(types), read, places, here.mask, *current)
            for place, value in zip(results, writer.unpack(loaded, types), strict=True):
                writer.store(value, place)
        count_access(writer, access, size_bytes, stores=False)
        values = [writer.load(type_, place) for type_, place in zip(types, results, strict=True)]
        writer.give(writer.pack(values))

    parameters = Access.parameters() + [(type_, f"old{j}") for j, type_ in enumerate(types)]
    name = f"load.{width}x{count}{'.ordered' if ordered else ''}"
    return module.function(name, struct_type(types), parameters, build)


def storer(module: Module, width: int, count: int, ordered: bool = False) -> str:
    """`store(access…, values…)`: what lies outside its allocation is dropped.

    `ordered` stores are volatile, relaxed or releasing.
    """
    types = result_types(width, count)
    size_bytes = width * count // 8

    def build(writer: Writer, *parameters: Value) -> None:
        access, values = Access(*parameters[:5]), parameters[5:]
        with each_window(writer, access, size_bytes) as here:
            shadow.before_store(writer, here, width, values, ordered)
            places = host_addresses(writer, here)
            write = writer_of(module, width, count)
            writer.call("void", write, places, here.mask, *values)
        count_access(writer, access, size_bytes, stores=True)
        writer.give()

    parameters = Access.parameters() + [(type_, f"value{j}") for j, type_ in enumerate(types)]
    name = f"store.{width}x{count}{'.ordered' if ordered else ''}"
    return module.function(name, "void", parameters, build)
