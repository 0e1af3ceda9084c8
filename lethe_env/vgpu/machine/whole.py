"""Loads and stores by whole warps whose lanes lie side by side, which most of them are.

Few instructions are spent on one: what it covers has a size that is known when code is written, and
is checked, marked, counted and moved as one piece. Whatever is unusual about an access is left,
untouched, to the code for all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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
_DEFINED = 0x0101010101010101


def loader(module: Module, width: int, count: int, shared: bool) -> str:
    """`load(addresses, lanes, window, site, context) -> values`; lanes that are off get zeros.

    Args:
        module: Where to write it.
        width: Bits of an element.
        count: Adjacent elements for each lane.
        shared: Whether the access is to shared memory, or to global.
    """
    types = result_types(width, count)
    result = struct_type(types)

    def build(writer: Writer, *parameters: Value) -> None:
        piece = _Piece(writer, parameters, width * count // 8, shared)
        with piece.unless_unusual():
            piece.check_defined()
            piece.touch(Touch.READ)
            piece.count(stores=False)
            place = piece.place("host")
            if not shared:
                # All instructions load here, so the processor does not foresee what each wants.
                stride = writer.read(piece.access.window, Site, "stride")
                prefetch(writer, writer.at(place, stride), piece.length)
            wide = writer.load(vector(f"i{width}", LANES * count), place, width // 8)
            writer.give(writer.pack(split(writer, wide, count)))
        name = others.loader(module, width, count)
        zeros = (constant(type_, 0) for type_ in types)
        writer.give(writer.call(result, name, *piece.access.values(), *zeros))

    space = "shared" if shared else "global"
    return module.function(f"whole.load.{space}.{width}x{count}", result, PARAMETERS, build)


def storer(module: Module, width: int, count: int, shared: bool) -> str:
    """`store(addresses, lanes, window, site, context, values…)`; arguments as for `loader`."""
    types = result_types(width, count)

    def build(writer: Writer, *parameters: Value) -> None:
        values = parameters[len(PARAMETERS) :]
        piece = _Piece(writer, parameters[: len(PARAMETERS)], width * count // 8, shared)
        with piece.unless_unusual():
            piece.touch(Touch.WRITE)
            piece.define()
            piece.count(stores=True)
            writer.store(join(writer, values), piece.place("host"), width // 8)
            writer.give()
        writer.call("void", others.storer(module, width, count), *piece.access.values(), *values)
        writer.give()

    space = "shared" if shared else "global"
    parameters = [*PARAMETERS, *((type_, f"value{j}") for j, type_ in enumerate(types))]
    return module.function(f"whole.store.{space}.{width}x{count}", "void", parameters, build)


class _Piece:
    """The piece of memory that an access covers, in the code of one function."""

    def __init__(
        self, writer: Writer, parameters: Sequence[Value], size_bytes: int, shared: bool
    ) -> None:
        addresses, lanes, *rest = parameters
        self.access = Access(addresses, writer.mask(lanes), *rest)
        self.length = LANES * size_bytes
        self._writer, self._lanes, self._shared = writer, lanes, shared
        self._size_bytes = size_bytes
        self._rest = writer.name("unusual")
        self._start = writer.extract(addresses, 0)
        base = writer.read(self.access.window, Site, "base")
        self._offset = writer.sub(self._start, base)

    @contextmanager
    def unless_unusual(self) -> Iterator[None]:
        """Code for accesses of this kind, which has to return; what follows is for others."""
        writer = self._writer
        self._require(writer.compare("eq", self._lanes, -1))
        self._require(self._is_side_by_side())
        size = writer.read(self.access.window, Site, "size")
        fits = writer.compare("uge", size, self.length)
        inside = writer.compare("ule", self._offset, writer.sub(size, self.length))
        self._require(writer.both(fits, inside))
        yield
        writer.label(self._rest)

    def place(self, field: str) -> Value:
        """Where it begins in a map that has the shape of the window, `ptr`."""
        start = self._writer.read(self.access.window, Site, field)
        return self._writer.cast("inttoptr", self._writer.add(start, self._offset), "ptr")

    def check_defined(self) -> None:
        """Go on if nobody looks for what is read undefined, or all of it is defined."""
        writer = self._writer
        with writer.when(writer.compare("ne", self._field("defined"), 0)):
            found, type_ = None, vector("i64", min(self.length, _LARGEST_PIECE) // _QUADWORD)
            for position in range(0, self.length, _LARGEST_PIECE):
                place = writer.at(self.place("defined"), position)
                part = writer.load(type_, place, 1)
                found = part if found is None else writer.both(found, part)
            missing = writer.any(writer.compare("ne", found, constant(type_, _DEFINED)))
            self._require(writer.invert(missing))

    def define(self) -> None:
        """Note that it is written."""
        writer = self._writer
        with writer.when(writer.compare("ne", self._field("defined"), 0)):
            ones = constant(vector("i64", self.length // _QUADWORD), _DEFINED)
            writer.store(ones, self.place("defined"), 1)

    def touch(self, how: Touch) -> None:
        """Mark its cells, if there are any, and go on if none is in conflict."""
        writer = self._writer
        with writer.when(writer.compare("ne", self._field("shadow"), 0)):
            if self._shared:
                self._touch_granules(how)
            else:
                ragged = writer.both(self._offset, _SECTOR_BYTES - 1)
                self._require(writer.compare("eq", ragged, 0))
                number = writer.shift_right(self._offset, SECTOR_BITS)
                marks = global_marks(writer, self.access.context)
                cells = self.length >> SECTOR_BITS
                place = self._cell("sectors", number)
                new, good = judged(writer, place, cells, how, marks, sectors=True)
                self._require(good)
                writer.store(new, place, CELL_BYTES)

    def _touch_granules(self, how: Touch) -> None:
        """In shared memory, no access is narrower than a granule."""
        writer, context = self._writer, self.access.context
        granule = writer.resize(writer.read(context, Context, "shared_granule_bits"), "i64")
        marks = shared_marks(writer, context)
        first = self._cell("shadow", writer.binary("lshr", self._offset, granule))
        with writer.repeat(writer.binary("lshr", i64(self._size_bytes), granule)) as group:
            place = writer.item(first, f"[{LANES} x i64]", group)
            new, good = judged(writer, place, LANES, how, marks, sectors=False)
            self._require(good)
            writer.store(new, place, CELL_BYTES)

    def count(self, stores: bool) -> None:
        """Count the access, if counting is on, and note how far it is from the one before."""
        writer, context = self._writer, self.access.context
        options = writer.read(context, Context, "options")
        with writer.when(writer.compare("ne", writer.both(options, COUNT_MEMORY), 0)):
            if self._shared:
                self._add("shared_bytes", i64(self.length))
            else:
                last = writer.add(self._start, self.length - self._size_bytes)
                sectors = (writer.shift_right(place, SECTOR_BITS) for place in (last, self._start))
                self._add("stored_bytes" if stores else "loaded_bytes", i64(self.length))
                self._add("sectors", writer.add(writer.sub(*sectors), 1))
        note_stride(writer, self.access, self._start, i64(self.length))

    def _add(self, name: str, amount: Value) -> None:
        writer = self._writer
        counters = writer.read(self.access.context, Context, "counters")
        total = writer.add(writer.read(counters, Counters, name), amount)
        writer.write(counters, Counters, name, total)

    def _is_side_by_side(self) -> Value:
        """Whether every lane is where lane 0 lets expect it, `i1`."""
        writer = self._writer
        steps = constants("i64", [self._size_bytes * lane for lane in range(LANES)])
        expected = writer.add(writer.splat(self._start), steps)
        differs = writer.binary("xor", self.access.addresses, expected)
        total, count = differs, LANES
        while count > _QUADWORD:
            count //= 2
            halves = (range(count), range(count, 2 * count))
            total = writer.either(*(writer.shuffle(total, half) for half in halves))
        return writer.invert(writer.any(writer.compare("ne", total, constant(total.type, 0))))

    def _field(self, name: str) -> Value:
        return self._writer.read(self.access.window, Site, name)

    def _cell(self, field: str, number: Value) -> Value:
        start = self._writer.cast("inttoptr", self._field(field), "ptr")
        return self._writer.item(start, "i64", number)

    def _require(self, condition: Value) -> None:
        """Go on if a condition holds, or leave the access to other code."""
        following = self._writer.name("usual")
        self._writer.branch(condition, following, self._rest)
        self._writer.label(following)
