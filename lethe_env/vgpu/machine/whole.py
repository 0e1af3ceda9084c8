"""Loads and stores by whole warps whose lanes lie side by side, or by lanes at one place.

Most accesses are of these kinds, so few instructions are spent on them: what one covers has a size
that is known when code is written, and is checked, marked, counted and moved as one piece. Whatever
is unusual about an access is left, untouched, to the code for all others.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import access as others
from .emit import Module, Writer
from .host_access import ADDRESSES, join, prefetch, result_types, split
from .layout import COUNT_MEMORY, Context, Counters, Site
from .sectors import CELL_BYTES, judged
from .shadow import Touch, global_marks, shared_marks
from .spans import SECTOR_BITS, note_stride
from .values import LANES, Value, constant, constants, i64, struct_type, vector
from .windows import Access

PARAMETERS = (
    (ADDRESSES, "addresses"),
    ("i32", "lanes"),
    ("ptr", "window"),
    ("i32", "site"),
    ("ptr", "context"),
)
"""Of these functions: as `windows.Access` has them, but for the bits of the active lanes."""

_QUADWORD = 8
_LARGEST_PIECE = 64
"""Bytes of definedness that are looked at together."""
_SECTOR_BYTES = 1 << SECTOR_BITS


def loader(module: Module, width: int, count: int, shared: bool) -> str:
    """`load(addresses, lanes, window, site, context) -> values`; lanes that are off get zeros.

    Args:
        module: Where to write it.
        width: Bits of an element.
        count: Adjacent elements for each lane.
        shared: Whether the access is to shared memory, or to global.
    """
    size_bytes = width * count // 8
    types = result_types(width, count)
    result = struct_type(types)
    zeros = [constant(type_, 0) for type_ in types]

    def build(writer: Writer, *parameters: Value) -> None:
        spread, rest = writer.name("spread"), writer.name("rest")
        access, lanes = _access(writer, parameters), parameters[1]
        row = _Piece(writer, access, lanes, size_bytes, LANES, shared, rest)
        row.require(writer.compare("eq", lanes, -1), otherwise=spread)
        row.require(row.is_side_by_side(), otherwise=spread)
        place = _load_checked(row)
        wide = writer.load(vector(f"i{width}", LANES * count), place, width // 8)
        writer.give(writer.pack(split(writer, wide, count)))
        writer.label(spread)
        with writer.when(writer.compare("eq", lanes, 0)):
            writer.give(writer.pack(zeros))
            writer.label(writer.name("given"))
        with writer.when(_are_together(writer, access, lanes)):
            point = _Piece(writer, access, lanes, size_bytes, 1, shared, rest)
            place = _load_checked(point)
            items = (
                writer.load(f"i{width}", writer.at(place, k * width // 8), width // 8)
                for k in range(count)
            )
            found = (writer.splat(item) for item in items)
            pairs = zip(found, zeros, strict=True)
            writer.give(writer.pack([writer.select(access.mask, *pair) for pair in pairs]))
            writer.label(writer.name("given"))
        with writer.when(writer.compare("eq", lanes, -1)):
            name = others.scattered_loader(module, width, count)
            writer.give(writer.call(result, name, *access.values(), *zeros))
            writer.label(writer.name("given"))
        writer.jump(rest)
        writer.label(rest)
        name = others.loader(module, width, count)
        writer.give(writer.call(result, name, *access.values(), *zeros))

    space = "shared" if shared else "global"
    return module.function(f"whole.load.{space}.{width}x{count}", result, PARAMETERS, build)


def _load_checked(piece: _Piece) -> Value:
    """Everything about loading a piece but the load itself; gives its place."""
    piece.require(piece.is_inside())
    piece.check_defined()
    piece.touch(Touch.READ)
    piece.count(stores=False)
    piece.expect_next()
    return piece.place("host")


def storer(module: Module, width: int, count: int, shared: bool) -> str:
    """`store(addresses, lanes, window, site, context, values…)`; arguments as for `loader`."""
    size_bytes = width * count // 8
    types = result_types(width, count)

    def build(writer: Writer, *parameters: Value) -> None:
        spread, rest = writer.name("spread"), writer.name("rest")
        access, lanes, values = _access(writer, parameters), parameters[1], parameters[5:]
        row = _Piece(writer, access, lanes, size_bytes, LANES, shared, rest)
        row.require(writer.compare("eq", lanes, -1), otherwise=spread)
        row.require(row.is_side_by_side(), otherwise=spread)
        writer.store(join(writer, values), _store_checked(row), width // 8)
        writer.give()
        writer.label(spread)
        with writer.when(writer.compare("eq", lanes, 0)):
            writer.give()
            writer.label(writer.name("given"))
        with writer.when(writer.compare("eq", lanes, 1)):
            place = _store_checked(_Piece(writer, access, lanes, size_bytes, 1, shared, rest))
            for position, value in enumerate(values):
                own = writer.at(place, position * width // 8)
                writer.store(writer.extract(value, 0), own, width // 8)
            writer.give()
            writer.label(writer.name("given"))
        with writer.when(writer.compare("eq", lanes, -1)):
            name = others.scattered_storer(module, width, count)
            writer.call("void", name, *access.values(), *values)
            writer.give()
            writer.label(writer.name("given"))
        writer.jump(rest)
        writer.label(rest)
        writer.call("void", others.storer(module, width, count), *access.values(), *values)
        writer.give()

    space = "shared" if shared else "global"
    parameters = [*PARAMETERS, *((type_, f"value{j}") for j, type_ in enumerate(types))]
    return module.function(f"whole.store.{space}.{width}x{count}", "void", parameters, build)


def _store_checked(piece: _Piece) -> Value:
    """Everything about storing a piece but the store itself; gives its place."""
    piece.require(piece.is_inside())
    piece.touch(Touch.WRITE)
    piece.define()
    piece.count(stores=True)
    return piece.place("host")


def _access(writer: Writer, parameters: Sequence[Value]) -> Access:
    addresses, lanes, window, site, context = parameters[: len(PARAMETERS)]
    return Access(addresses, writer.mask(lanes), window, site, context)


def _are_together(writer: Writer, access: Access, lanes: Value) -> Value:
    """Whether lane 0 is active, and all others that are access the same place, `i1`."""
    start = writer.splat(writer.extract(access.addresses, 0))
    elsewhere = writer.bits(writer.compare("ne", access.addresses, start))
    same = writer.compare("eq", writer.both(elsewhere, lanes), 0)
    return writer.both(same, writer.cast("trunc", lanes, "i1"))


class _Piece:
    """The piece of memory that an access covers from lane 0 on, in the code of a function."""

    def __init__(
        self,
        writer: Writer,
        access: Access,
        lanes: Value,
        size_bytes: int,
        items: int,
        shared: bool,
        rest: str,
    ) -> None:
        """Begin.

        Args:
            writer: Where to write.
            access: The access.
            lanes: Its active lanes, `i32`.
            size_bytes: What each covers.
            items: How many of these lie side by side.
            shared: Whether they are in shared memory, or in global.
            rest: Label of the code for what is unusual.
        """
        self._writer, self._access, self._lanes = writer, access, lanes
        self._size_bytes, self._items, self._shared = size_bytes, items, shared
        self._length = items * size_bytes
        self._rest = rest
        self._start = writer.extract(access.addresses, 0)
        self._offset = writer.sub(self._start, self._field("base"))

    def require(self, condition: Value, otherwise: str = "") -> None:
        """Go on if a condition holds, or leave the access to other code."""
        following = self._writer.name("usual")
        self._writer.branch(condition, following, otherwise or self._rest)
        self._writer.label(following)

    def is_side_by_side(self) -> Value:
        """Whether every lane is where lane 0 lets expect it, `i1`."""
        writer = self._writer
        steps = constants("i64", [self._size_bytes * lane for lane in range(LANES)])
        expected = writer.add(writer.splat(self._start), steps)
        total = writer.binary("xor", self._access.addresses, expected)
        count = LANES
        while count > _QUADWORD:
            count //= 2
            halves = (range(count), range(count, 2 * count))
            total = writer.either(*(writer.shuffle(total, half) for half in halves))
        return writer.invert(writer.any(writer.compare("ne", total, constant(total.type, 0))))

    def is_inside(self) -> Value:
        """Whether all of it lies in the window, `i1`."""
        writer, size = self._writer, self._field("size")
        fits = writer.compare("uge", size, self._length)
        room = writer.sub(size, self._length)
        return writer.both(fits, writer.compare("ule", self._offset, room))

    def place(self, field: str) -> Value:
        """Where it begins in a map that has the shape of the window, `ptr`."""
        start = self._field(field)
        return self._writer.cast("inttoptr", self._writer.add(start, self._offset), "ptr")

    def check_defined(self) -> None:
        """Go on if nobody looks for what is read undefined, or all of it is defined."""
        writer = self._writer
        with writer.when(writer.compare("ne", self._field("defined"), 0)):
            start, step = self.place("defined"), min(self._length, _LARGEST_PIECE)
            wanted = _defined(step)
            found = wanted
            for position in range(0, self._length, step):
                part = writer.load(wanted.type, writer.at(start, position), 1)
                found = writer.both(found, part)
            missing = writer.compare("ne", found, wanted)
            if missing.type != "i1":
                missing = writer.any(missing)
            self.require(writer.invert(missing))

    def define(self) -> None:
        """Note that it is written."""
        writer = self._writer
        with writer.when(writer.compare("ne", self._field("defined"), 0)):
            writer.store(_defined(self._length), self.place("defined"), 1)

    def touch(self, how: Touch) -> None:
        """Mark its cells, if there are any, and go on if none is in conflict."""
        writer = self._writer
        cells = writer.compare("ne", self._field("shadow"), 0)
        if not self._shared and self._length % _SECTOR_BYTES:
            self.require(writer.invert(cells))
            return
        with writer.when(cells):
            if self._shared:
                self._touch_granules(how)
            else:
                self._touch_sectors(how)

    def _touch_sectors(self, how: Touch) -> None:
        writer = self._writer
        ragged = writer.both(self._offset, _SECTOR_BYTES - 1)
        self.require(writer.compare("eq", ragged, 0))
        place = self._cell("sectors", writer.shift_right(self._offset, SECTOR_BITS))
        marks = global_marks(writer, self._access.context)
        cells = self._length >> SECTOR_BITS
        new, good = judged(writer, place, cells, how, marks, sectors=True)
        self.require(good)
        writer.store(new, place, CELL_BYTES)

    def _touch_granules(self, how: Touch) -> None:
        """In shared memory, no access is narrower than a granule."""
        writer, context = self._writer, self._access.context
        granule = writer.resize(writer.read(context, Context, "shared_granule_bits"), "i64")
        marks = shared_marks(writer, context)
        first = self._cell("shadow", writer.binary("lshr", self._offset, granule))
        with writer.repeat(writer.binary("lshr", i64(self._size_bytes), granule)) as group:
            place = writer.item(first, f"[{self._items} x i64]", group)
            new, good = judged(writer, place, self._items, how, marks, sectors=False)
            self.require(good)
            writer.store(new, place, CELL_BYTES)

    def count(self, stores: bool) -> None:
        """Count the access, if counting is on."""
        writer = self._writer
        options = writer.read(self._access.context, Context, "options")
        with writer.when(writer.compare("ne", writer.both(options, COUNT_MEMORY), 0)):
            lanes = writer.resize(writer.call("i32", "llvm.ctpop.i32", self._lanes), "i64")
            moved = i64(self._length) if self._items > 1 else writer.mul(lanes, self._size_bytes)
            if self._shared:
                self._add("shared_bytes", moved)
            else:
                last = writer.add(self._start, self._length - self._size_bytes)
                sectors = (writer.shift_right(place, SECTOR_BITS) for place in (last, self._start))
                self._add("stored_bytes" if stores else "loaded_bytes", moved)
                self._add("sectors", writer.add(writer.sub(*sectors), 1))

    def expect_next(self) -> None:
        """Ask for what is likely to be loaded next.

        All instructions load in one function, so the processor does not foresee it.
        """
        writer = self._writer
        note_stride(writer, self._access, self._start, i64(self._length))
        if not self._shared:
            stride = writer.read(self._access.window, Site, "stride")
            prefetch(writer, writer.at(self.place("host"), stride), self._length)

    def _add(self, name: str, amount: Value) -> None:
        writer = self._writer
        counters = writer.read(self._access.context, Context, "counters")
        total = writer.add(writer.read(counters, Counters, name), amount)
        writer.write(counters, Counters, name, total)

    def _field(self, name: str) -> Value:
        return self._writer.read(self._access.window, Site, name)

    def _cell(self, field: str, number: Value) -> Value:
        start = self._writer.cast("inttoptr", self._field(field), "ptr")
        return self._writer.item(start, "i64", number)


def _defined(size_bytes: int) -> Value:
    """The map of so many bytes if all are defined, in words as wide as they may be."""
    word = min(size_bytes, _QUADWORD)
    bits = int.from_bytes(b"\1" * word, "little")
    type_ = f"i{8 * word}"
    return constant(type_ if word == size_bytes else vector(type_, size_bytes // word), bits)
