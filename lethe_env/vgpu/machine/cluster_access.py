"""Loads and stores of a warp to the shared memory of any block of its cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import definedness
from .access import POISON, loader, storer
from .cluster_memory import home_of, is_foreign, offset_in, touch
from .emit import Module, Writer
from .host_access import reader, result_types, writer_of
from .layout import RANK_BITS, Context
from .shadow import Touch
from .values import Value, constant, i64, struct_type, vector
from .windows import Access, each_window, host_addresses


@contextmanager
def each_block(writer: Writer, access: Access) -> Iterator[tuple[Access, Value]]:
    """Code that runs once for every block whose memory the lanes of an access point into.

    Gives the access of those lanes, to the window of that block, and the block's context.
    """
    addresses = writer.variable(access.addresses)
    left = writer.variable(writer.bits(access.mask))
    head, inside, after = (writer.name(stem) for stem in ("head", "inside", "after"))
    writer.jump(head)
    writer.label(head)
    bits = writer.load("i32", left)
    writer.branch(writer.compare("ne", bits, 0), inside, after)
    writer.label(inside)
    lane = writer.resize(writer.call("i32", "llvm.cttz.i32", bits, constant("i1", 1)), "i64")
    address = writer.load("i64", writer.item(addresses, "i64", lane))
    home = home_of(writer, access.context, address)
    rank = writer.splat(writer.shift_right(address, RANK_BITS))
    same = writer.compare("eq", writer.shift_right(access.addresses, RANK_BITS), rank)
    here = writer.both(writer.bits(same), bits)
    writer.store(writer.both(bits, writer.invert(here)), left)
    window = writer.field(home, Context, "shared_window")
    mask = writer.mask(here)
    yield Access(access.addresses, mask, window, access.site, access.context), home
    writer.jump(head)
    writer.label(after)


def touch_lanes(
    writer: Writer, access: Access, home: Value, mask: Value, size_bytes: int, how: Touch
) -> None:
    """Check and mark what lanes of an access do to another block's memory."""
    addresses = writer.variable(access.addresses)
    with writer.lanes(writer.bits(mask)) as lane:
        address = writer.load("i64", writer.item(addresses, "i64", lane))
        offset = offset_in(writer, home, address)
        touch(writer, access.context, home, offset, i64(size_bytes), how, access.site)


def cluster_loader(module: Module, width: int, count: int, ordered: bool) -> str:
    """`load(access…, old…) -> values`: see `access.loader`; the window is that of any block."""
    types = result_types(width, count)
    size_bytes = width * count // 8

    def build(writer: Writer, *parameters: Value) -> None:
        access, old = Access(*parameters[:5]), parameters[5:]
        results = [
            writer.variable(writer.select(access.mask, constant(type_, POISON), value))
            for type_, value in zip(types, old, strict=True)
        ]

        def take(name: str, *arguments: Value) -> None:
            current = [writer.load(t, place) for t, place in zip(types, results, strict=True)]
            found = writer.call(struct_type(types), name, *arguments, *current)
            for place, value in zip(results, writer.unpack(found, types), strict=True):
                writer.store(value, place)

        with each_block(writer, access) as (here, home):
            foreign = is_foreign(writer, access.context, home)
            with writer.when(writer.invert(foreign)):
                take(loader(module, width, count, ordered), *here.values())
            with writer.when(foreign), each_window(writer, here, size_bytes) as inside:
                definedness.check(writer, inside, width, count)
                how = Touch.ATOMIC_READ if ordered else Touch.READ
                touch_lanes(writer, inside, home, inside.mask, size_bytes, how)
                take(reader(module, width, count), host_addresses(writer, inside), inside.mask)
        values = [writer.load(type_, place) for type_, place in zip(types, results, strict=True)]
        writer.give(writer.pack(values))

    parameters = Access.parameters() + [(type_, f"old{j}") for j, type_ in enumerate(types)]
    name = f"cluster.load.{'ordered' if ordered else 'plain'}.{width}x{count}"
    return module.function(name, struct_type(types), parameters, build)


def cluster_storer(module: Module, width: int, count: int, ordered: bool) -> str:
    """`store(access…, values…)`: see `access.storer`; the window is that of any block."""
    types = result_types(width, count)
    size_bytes = width * count // 8

    def build(writer: Writer, *parameters: Value) -> None:
        access, values = Access(*parameters[:5]), parameters[5:]
        with each_block(writer, access) as (here, home):
            foreign = is_foreign(writer, access.context, home)
            with writer.when(writer.invert(foreign)):
                writer.call("void", storer(module, width, count, ordered), *here.values(), *values)
            with writer.when(foreign), each_window(writer, here, size_bytes) as inside:
                changed = _changed(writer, inside, width, values)
                how = Touch.ATOMIC if ordered else Touch.WRITE
                touch_lanes(writer, inside, home, changed, size_bytes, how)
                definedness.mark(writer, inside, width, count, defined=True)
                places = host_addresses(writer, inside)
                write = writer_of(module, width, count)
                writer.call("void", write, places, inside.mask, *values)
        writer.give()

    parameters = Access.parameters() + [(type_, f"value{j}") for j, type_ in enumerate(types)]
    name = f"cluster.store.{'ordered' if ordered else 'plain'}.{width}x{count}"
    return module.function(name, "void", parameters, build)


def _changed(writer: Writer, access: Access, width: int, values: tuple[Value, ...]) -> Value:
    """Lanes that store something else than is there; only they can be in conflict."""
    types = result_types(width, len(values))
    read = reader(writer.module, width, len(values))
    places = host_addresses(writer, access)
    found = writer.call(struct_type(types), read, places, access.mask, *values)
    differs = constant(vector("i1"), 0)
    for old, new in zip(writer.unpack(found, types), values, strict=True):
        differs = writer.either(differs, writer.compare("ne", old, new))
    return writer.both(differs, access.mask)
