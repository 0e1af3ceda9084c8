"""Fake addresses to host addresses: every access stays in the one allocation it points into.

An instruction remembers the window it hit last in its `Site`; shared memory is one window of the
context. An access whose lanes lie in several windows is made window by window.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .emit import Module, Writer
from .host_access import ADDRESSES, MASK
from .layout import (
    CHECK_DEFINED,
    CHECK_RACES,
    VARIABLES_WINDOW,
    WINDOW_BITS,
    Context,
    Record,
    Row,
    Site,
)
from .values import Value, constant, i32, i64

OUT_OF_BOUNDS, UNINITIALISED_READ, RACE, BARRIER, ASYNCHRONOUS = range(5)


@dataclass(frozen=True, slots=True)
class Access:
    """One memory access of a warp, as the helper functions receive it."""

    addresses: Value
    """Fake addresses, `<32 x i64>`."""
    mask: Value
    window: Value
    """Pointer to the `Site` that holds the window."""
    site: Value
    """Number of the instruction's site, `i32`."""
    context: Value

    @staticmethod
    def parameters() -> list[tuple[str, str]]:
        """Types and names by which a function takes an access."""
        return [
            (ADDRESSES, "addresses"),
            (MASK, "mask"),
            ("ptr", "window"),
            ("i32", "site"),
            ("ptr", "context"),
        ]

    def values(self) -> list[Value]:
        """The arguments in the order of `parameters`."""
        return [self.addresses, self.mask, self.window, self.site, self.context]

    def narrowed(self, mask: Value) -> Access:
        """The same access by fewer lanes."""
        return Access(self.addresses, mask, self.window, self.site, self.context)


def host_addresses(writer: Writer, access: Access, field: str = "host") -> Value:
    """Addresses in a map that has the shape of the allocation: its data, or its definedness."""
    base = writer.read(access.window, Site, "base")
    start = writer.read(access.window, Site, field)
    return writer.add(access.addresses, writer.splat(writer.sub(start, base)))


@contextmanager
def each_window(writer: Writer, access: Access, size_bytes: int) -> Iterator[Access]:
    """Code that runs once for every window the access touches, with the lanes in it.

    Lanes that lie outside the allocation they point into are reported and left out.
    """
    remaining = writer.variable(writer.bits(access.mask))
    head, inside, after = writer.name("head"), writer.name("inside"), writer.name("after")
    found, missing = writer.name("found"), writer.name("missing")
    writer.jump(head)
    writer.label(head)
    bits = writer.load("i32", remaining)
    writer.branch(writer.compare("ne", bits, 0), inside, after)
    writer.label(inside)
    hit = writer.both(bits, writer.bits(lanes_inside(writer, access, size_bytes)))
    writer.branch(writer.compare("ne", hit, 0), found, missing)
    writer.label(missing)
    seek = _seeker(writer.module)
    here = access.narrowed(writer.mask(bits))
    kept = writer.call("i32", seek, *here.values(), i64(size_bytes))
    writer.store(kept, remaining)
    writer.jump(head)
    writer.label(found)
    writer.store(writer.both(bits, writer.invert(hit)), remaining)
    yield access.narrowed(writer.mask(hit))
    writer.jump(head)
    writer.label(after)


def report(writer: Writer, access: Access, kind: int, lanes: Value, other: Value) -> None:
    """Record a finding, once per kind and instruction.

    Args:
        writer: Where to write.
        access: The access; `lanes` of it are at fault.
        kind: Index in `layout.FINDING_KINDS`.
        lanes: `i32` of lanes, not zero.
        other: `i64` with what the kind wants to tell.
    """
    name = _reporter(writer.module)
    writer.call("void", name, *access.values(), i32(kind), lanes, other)


def lanes_inside(writer: Writer, access: Access, size_bytes: int) -> Value:
    """Lanes whose access lies in the window, active or not, `<32 x i1>`."""
    base = writer.read(access.window, Site, "base")
    size = writer.read(access.window, Site, "size")
    fits = writer.compare("uge", size, size_bytes)
    limit = writer.select(fits, writer.sub(size, size_bytes - 1), i64(0))
    offsets = writer.sub(access.addresses, writer.splat(base))
    return writer.compare("ult", offsets, writer.splat(limit))


def _reporter(module: Module) -> str:
    def build(
        writer: Writer,
        addresses: Value,
        mask: Value,
        window: Value,
        site: Value,
        context: Value,
        kind: Value,
        lanes: Value,
        other: Value,
    ) -> None:
        sites = writer.read(context, Context, "sites")
        own = writer.item(sites, f"[{_size(Site)} x i8]", writer.resize(site, "i64"))
        reported = writer.read(own, Site, "reported")
        bit = writer.shift_left(i32(1), kind)
        with writer.when(writer.compare("eq", writer.both(reported, bit), 0)):
            writer.write(own, Site, "reported", writer.either(reported, bit))
            count = writer.read(context, Context, "record_count")
            records = writer.read(context, Context, "records")
            record = writer.item(records, f"[{_size(Record)} x i8]", count)
            first = writer.call("i32", "llvm.cttz.i32", lanes, constant("i1", 0))
            lane = writer.both(writer.resize(first, "i64"), 31)
            writer.write(record, Record, "kind", kind)
            writer.write(record, Record, "site", site)
            writer.write(record, Record, "lanes", lanes)
            writer.write(record, Record, "block", writer.read(context, Context, "block"))
            writer.write(record, Record, "address", writer.extract(addresses, lane))
            writer.write(record, Record, "other", other)
            writer.write(context, Context, "record_count", writer.add(count, 1))
        writer.give()

    parameters = [*Access.parameters(), ("i32", "kind"), ("i32", "lanes"), ("i64", "other")]
    return module.function("window.report", "void", parameters, build, "noinline cold")


def _seeker(module: Module) -> str:
    """The function that moves a site to the window of the first lane; gives the lanes that stay."""

    def build(
        writer: Writer,
        addresses: Value,
        mask: Value,
        window: Value,
        site: Value,
        context: Value,
        size: Value,
    ) -> None:
        access = Access(addresses, mask, window, site, context)
        bits = writer.bits(mask)
        row = writer.slot(f"[{_size(Row)} x i8]", 8)
        spread = writer.variable(addresses)
        stray = writer.variable(i32(0))
        moved = writer.variable(constant("i1", 0))
        with writer.lanes(bits) as lane:
            address = writer.load("i64", writer.item(spread, "i64", lane))
            fits = _find_row(writer, context, address, size, row, window)
            bit = writer.shift_left(i32(1), writer.resize(lane, "i32"))
            with writer.when(writer.invert(fits)):
                writer.store(writer.either(writer.load("i32", stray), bit), stray)
            fresh = writer.both(fits, writer.invert(writer.load("i1", moved)))
            with writer.when(fresh):
                writer.store(constant("i1", 1), moved)
                _fill_site(writer, context, window, row, address)
        lost = writer.load("i32", stray)
        with writer.when(writer.compare("ne", lost, 0)):
            report(writer, access, OUT_OF_BOUNDS, lost, size)
        writer.give(writer.both(bits, writer.invert(lost)))

    parameters = [*Access.parameters(), ("i64", "size")]
    return module.function("window.seek", "i32", parameters, build, "noinline cold")


def _find_row(
    writer: Writer, context: Value, address: Value, size: Value, row: Value, window: Value
) -> Value:
    """Copy the row an address points into; whether the access fits, `i1`."""
    number = writer.shift_right(address, WINDOW_BITS)
    writer.call("void", "llvm.memset.p0.i64", row, constant("i8", 0), i64(_size(Row)),
                constant("i1", 0))  # fmt: skip
    table_size = writer.read(context, Context, "table_size")
    shared = writer.compare("eq", window, writer.field(context, Context, "shared_window"))
    listed = writer.both(writer.compare("ult", number, table_size), writer.invert(shared))
    with writer.when(listed):
        table = writer.read(context, Context, "table")
        source = writer.item(table, f"[{_size(Row)} x i8]", number)
        _copy_row(writer, row, source)
    with writer.when(writer.compare("eq", number, VARIABLES_WINDOW)):
        _copy_row(writer, row, writer.field(context, Context, "variables"))
    offset = writer.sub(address, writer.read(row, Row, "base"))
    extent = writer.read(row, Row, "size")
    enough = writer.compare("uge", extent, size)
    limit = writer.sub(extent, size)
    return writer.both(enough, writer.compare("ule", offset, limit))


def _copy_row(writer: Writer, target: Value, source: Value) -> None:
    volatile = constant("i1", 0)
    writer.call("void", "llvm.memcpy.p0.p0.i64", target, source, i64(_size(Row)), volatile)


def _fill_site(writer: Writer, context: Value, window: Value, row: Value, address: Value) -> None:
    for field in ("base", "size", "host"):
        writer.write(window, Site, field, writer.read(row, Row, field))
    options = writer.read(context, Context, "options")
    wanted = writer.compare("ne", writer.both(options, CHECK_DEFINED), 0)
    defined = writer.select(wanted, writer.read(row, Row, "defined"), i64(0))
    writer.write(window, Site, "defined", defined)
    writer.write(window, Site, "shadow", 0)
    writer.write(window, Site, "sectors", 0)
    writer.write(window, Site, "spread_bytes", 0)
    number = writer.shift_right(address, WINDOW_BITS)
    listed = writer.compare("ult", number, writer.read(context, Context, "table_size"))
    wanted = writer.compare("ne", writer.both(options, CHECK_RACES), 0)
    with writer.when(writer.both(listed, wanted)):
        for field, source in (("shadow", "shadows"), ("sectors", "sectors")):
            column = writer.read(context, Context, source)
            found = writer.load("i64", writer.item(column, "i64", number))
            writer.write(window, Site, field, found)


def _size(structure: type[ctypes.Structure]) -> int:
    return ctypes.sizeof(structure)
