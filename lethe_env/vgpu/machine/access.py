"""Loads and stores of a warp as functions: bounds, sanitizers, data, counts."""

from __future__ import annotations

from collections.abc import Sequence

from . import shadow, spans
from .counts import count_access
from .emit import Module, Writer
from .host_access import (
    piece_reader,
    piece_writer,
    read_single,
    reader,
    result_types,
    writer_of,
)
from .layout import Site
from .spans import Span
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
    name = f"load.{width}x{count}"
    parameters = Access.parameters() + [(type_, f"old{j}") for j, type_ in enumerate(types)]
    by_lane = _loader_by_lane(module, width, count, ordered)
    if ordered:
        return by_lane

    def build(writer: Writer, *parameters: Value) -> None:
        access, old = Access(*parameters[:5]), parameters[5:]
        idle, busy, whole, single = (writer.name(x) for x in ("idle", "busy", "whole", "single"))
        writer.branch(writer.compare("eq", writer.bits(access.mask), 0), idle, busy)
        writer.label(idle)
        writer.give(writer.pack(old))
        writer.label(busy)
        span = spans.recognise(writer, access, size_bytes)
        well = writer.variable(span.good)
        with writer.when(span.good):
            writer.store(_may_load(writer, access, span), well)
        with writer.when(writer.invert(writer.load("i1", well))):
            result = writer.call(struct_type(types), by_lane, *access.values(), *old)
            writer.give(result)
            writer.label(writer.name("unreachable"))
        spans.count(writer, access, span, size_bytes, stores=False)
        place = spans.place(writer, access, span)
        writer.branch(span.same, single, whole)
        writer.label(single)
        writer.give(writer.pack(read_single(writer, place, access.mask, old, width)))
        writer.label(whole)
        writer.give(writer.call(struct_type(types), piece_reader(module, width, count), place,
                                access.mask, *old))  # fmt: skip

    return module.function(name, struct_type(types), parameters, build)


def _may_load(writer: Writer, access: Access, span: Span) -> Value:
    """Whether nothing is wrong with loading a span, `i1`; marks it as read if so."""
    well = writer.variable(constant("i1", 1))
    defined = writer.read(access.window, Site, "defined")
    with writer.when(writer.compare("ne", defined, 0)):
        start = spans.place(writer, access, span, "defined")
        found = writer.call("i1", spans.all_defined(writer.module), start, span.length)
        writer.store(found, well)
    with writer.when(writer.load("i1", well)):
        writer.store(shadow.touch_piece(writer, access, span, shadow.Touch.READ), well)
    return writer.load("i1", well)


def _loader_by_lane(module: Module, width: int, count: int, ordered: bool = False) -> str:
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
    name = f"load.{'ordered' if ordered else 'lanes'}.{width}x{count}"
    return module.function(name, struct_type(types), parameters, build)


def storer(module: Module, width: int, count: int, ordered: bool = False) -> str:
    """`store(access…, values…)`: what lies outside its allocation is dropped.

    `ordered` stores are volatile, relaxed or releasing.
    """
    types = result_types(width, count)
    size_bytes = width * count // 8
    parameters = Access.parameters() + [(type_, f"value{j}") for j, type_ in enumerate(types)]
    by_lane = _storer_by_lane(module, width, count, ordered)
    if ordered:
        return by_lane

    def build(writer: Writer, *parameters: Value) -> None:
        access, values = Access(*parameters[:5]), parameters[5:]
        with writer.when(writer.compare("ne", writer.bits(access.mask), 0)):
            span = spans.recognise(writer, access, size_bytes)
            single = writer.compare("eq", span.lanes, 1)
            good = writer.both(span.good, writer.either(single, writer.invert(span.same)))
            well = writer.variable(good)
            with writer.when(good):
                touched = shadow.touch_piece(writer, access, span, shadow.Touch.WRITE)
                writer.store(touched, well)
            with writer.when(writer.invert(writer.load("i1", well))):
                writer.call("void", by_lane, *parameters)
            with writer.when(writer.load("i1", well)):
                _store_span(writer, access, span, width, values)
        writer.give()

    return module.function(f"store.{width}x{count}", "void", parameters, build)


def _store_span(
    writer: Writer, access: Access, span: Span, width: int, values: Sequence[Value]
) -> None:
    defined = writer.read(access.window, Site, "defined")
    with writer.when(writer.compare("ne", defined, 0)):
        start = spans.place(writer, access, span, "defined")
        writer.call("void", spans.set_defined(writer.module), start, span.length)
    spans.count(writer, access, span, width * len(values) // 8, stores=True)
    write = piece_writer(writer.module, width, len(values))
    writer.call("void", write, spans.place(writer, access, span), access.mask, *values)


def _storer_by_lane(module: Module, width: int, count: int, ordered: bool = False) -> str:
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
    name = f"store.{'ordered' if ordered else 'lanes'}.{width}x{count}"
    return module.function(name, "void", parameters, build)
