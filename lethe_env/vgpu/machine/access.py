"""Loads and stores of a warp as functions: bounds, sanitizers, data, counts."""

from __future__ import annotations

from collections.abc import Sequence

from . import scattered, shadow, spans
from .counts import count_access
from .emit import Module, Writer
from .host_access import (
    piece_reader,
    piece_writer,
    prefetch,
    read_single,
    reader,
    result_types,
    writer_of,
)
from .layout import Site
from .spans import Span
from .values import LANES, Value, constant, struct_type
from .windows import Access, each_window, host_addresses

POISON = -1
"""Bits that a load outside its allocation gives, in every byte 0xFF."""


def loader(module: Module, width: int, count: int, ordered: bool = False) -> str:
    """`load(access…, old…) -> values`: lanes that are off keep `old`.

    Args:
        module: Where to write it.
        width: Bits of an element.
        count: Adjacent elements for each lane.
        ordered: Volatile, relaxed or acquiring: does not race with atomic operations.
    """
    by_lane = _loader_by_lane(module, width, count, ordered)
    if ordered:
        return by_lane
    types = result_types(width, count)
    result = struct_type(types)
    size_bytes = width * count // 8
    scattered_name = scattered_loader(module, width, count)

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
        piece, spread = writer.name("piece"), writer.name("spread")
        writer.branch(writer.load("i1", well), piece, spread)
        writer.label(spread)
        writer.give(writer.call(result, scattered_name, *parameters))
        writer.label(piece)
        spans.count(writer, access, span, size_bytes, stores=False)
        place = spans.place(writer, access, span)
        writer.branch(span.same, single, whole)
        writer.label(single)
        writer.give(writer.pack(read_single(writer, place, access.mask, old, width)))
        writer.label(whole)
        # All instructions load here, so the processor does not foresee what each loads next.
        stride = writer.read(access.window, Site, "stride")
        prefetch(writer, writer.at(place, stride), LANES * size_bytes)
        read = piece_reader(module, width, count)
        writer.give(writer.call(result, read, place, access.mask, *old))

    return module.function(f"load.{width}x{count}", result, _load_parameters(types), build)


def _load_parameters(types: Sequence[str]) -> list[tuple[str, str]]:
    return Access.parameters() + [(type_, f"old{j}") for j, type_ in enumerate(types)]


def scattered_loader(module: Module, width: int, count: int) -> str:
    """The same for lanes that lie anywhere."""
    types = result_types(width, count)
    result = struct_type(types)
    size_bytes = width * count // 8

    def build(writer: Writer, *parameters: Value) -> None:
        access, old = Access(*parameters[:5]), parameters[5:]
        with writer.when(scattered.is_plain(writer, access, size_bytes)):
            values, defined = scattered.read_lanes(writer, access, width, old)
            with writer.when(defined):
                fine = scattered.may_touch(writer, access, size_bytes, shadow.Touch.READ)
                with writer.when(fine):
                    count_access(writer, access, size_bytes, stores=False)
                    writer.give(writer.pack(values))
                    writer.label(writer.name("given"))
        name = _loader_by_lane(module, width, count, ordered=False)
        writer.give(writer.call(result, name, *parameters))

    name = f"load.scattered.{width}x{count}"
    return module.function(name, result, _load_parameters(types), build)


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


def _loader_by_lane(module: Module, width: int, count: int, ordered: bool) -> str:
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

    name = f"load.{'ordered' if ordered else 'lanes'}.{width}x{count}"
    return module.function(name, struct_type(types), _load_parameters(types), build)


def storer(module: Module, width: int, count: int, ordered: bool = False) -> str:
    """`store(access…, values…)`: what lies outside its allocation is dropped.

    Arguments as for `loader`; `ordered` stores are volatile, relaxed or releasing.
    """
    by_lane = _storer_by_lane(module, width, count, ordered)
    if ordered:
        return by_lane
    size_bytes = width * count // 8

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
                scattered_name = scattered_storer(module, width, count)
                writer.call("void", scattered_name, *parameters)
            with writer.when(writer.load("i1", well)):
                _store_span(writer, access, span, width, values)
        writer.give()

    parameters = _store_parameters(width, count)
    return module.function(f"store.{width}x{count}", "void", parameters, build)


def _store_parameters(width: int, count: int) -> list[tuple[str, str]]:
    types = result_types(width, count)
    return Access.parameters() + [(type_, f"value{j}") for j, type_ in enumerate(types)]


def scattered_storer(module: Module, width: int, count: int) -> str:
    """The same for lanes that lie anywhere."""
    size_bytes = width * count // 8

    def build(writer: Writer, *parameters: Value) -> None:
        access, values = Access(*parameters[:5]), parameters[5:]
        well = writer.variable(scattered.is_plain(writer, access, size_bytes))
        with writer.when(writer.load("i1", well)):
            fine = scattered.may_touch(writer, access, size_bytes, shadow.Touch.WRITE)
            writer.store(fine, well)
        with writer.when(writer.load("i1", well)):
            scattered.write_lanes(writer, access, width, values)
            count_access(writer, access, size_bytes, stores=True)
        with writer.when(writer.invert(writer.load("i1", well))):
            by_lane = _storer_by_lane(module, width, count, ordered=False)
            writer.call("void", by_lane, *parameters)
        writer.give()

    name = f"store.scattered.{width}x{count}"
    return module.function(name, "void", _store_parameters(width, count), build)


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


def _storer_by_lane(module: Module, width: int, count: int, ordered: bool) -> str:
    """`store(access…, values…)`: what lies outside its allocation is dropped.

    `ordered` stores are volatile, relaxed or releasing.
    """
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

    name = f"store.{'ordered' if ordered else 'lanes'}.{width}x{count}"
    return module.function(name, "void", _store_parameters(width, count), build)
