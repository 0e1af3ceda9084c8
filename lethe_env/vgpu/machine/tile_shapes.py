"""The tile that a copy moves, from its tensor map and coordinates."""

from __future__ import annotations

from dataclasses import dataclass

from .chunks import CHUNK_BYTES
from .emit import Writer
from .refusals import refuse
from .tensor_maps import MAP_BYTES, TensorMap, fetcher
from .units import RANKS, Operation
from .values import Value, i32, i64

_SIZES = (0, 1, 2, 2, 3, 3, 1, 2, None, 3, 1)
"""Logarithms of the bytes of an element, by the number of its type; those that convert are not
implemented.
"""
_UNKNOWN = 15
_LARGEST_BOX = 256
_WIDEST_SWIZZLE = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """A tile as one operation finds it; lists go from the innermost dimension out, `i64` each."""

    element_bits: Value
    """Logarithm of the bytes of an element."""
    swizzle: Value
    """Bits of a chunk's number that are exchanged."""
    nan_fill: Value
    start: Value
    boxes: list[Value]
    lengths: list[Value]
    strides: list[Value]
    origin: list[Value]
    element_type: Value

    def row_bytes(self, writer: Writer) -> Value:
        """Bytes of an innermost row of the tile."""
        return writer.binary("shl", self.boxes[0], self.element_bits)

    def rows(self, writer: Writer) -> Value:
        """Rows of the tile."""
        total = self.boxes[1]
        for box in self.boxes[2:]:
            total = writer.mul(total, box)
        return total


@dataclass(frozen=True, slots=True)
class _Dimension:
    """One dimension of a tile, `i64` each; those beyond the rank have one element."""

    box: Value
    length: Value
    origin: Value
    stride: Value
    """From one index to the next, of all but the innermost."""
    simple: Value
    """Whether it is implemented, `i1`."""


def read_shape(writer: Writer, context: Value, operation: Value) -> tuple[Shape, Value]:
    """The tile of an operation, and whether its map is implemented; ends the launch if not."""
    place = writer.slot(f"[{MAP_BYTES} x i8]", 16)
    address = writer.read(operation, Operation, "left")
    site = writer.read(operation, Operation, "site")
    writer.call("void", fetcher(writer.module), context, address, site, place)
    number, interleave, swizzle, fill = (
        writer.resize(writer.read(place, TensorMap, name), "i64")
        for name in ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode")
    )
    bits, known = _element_bits(writer, number)
    dimensions = [_dimension(writer, place, operation, index) for index in range(RANKS)]
    shape = Shape(
        element_bits=bits,
        swizzle=writer.sub(writer.binary("shl", i64(1), writer.both(swizzle, 3)), 1),
        nan_fill=writer.compare("ne", fill, 0),
        start=writer.read(place, TensorMap, "global_address"),
        boxes=[dimension.box for dimension in dimensions],
        lengths=[dimension.length for dimension in dimensions],
        strides=[dimension.stride for dimension in dimensions[1:]],
        origin=[dimension.origin for dimension in dimensions],
        element_type=number,
    )
    ragged = writer.both(shape.row_bytes(writer), CHUNK_BYTES - 1)
    rank = writer.add(writer.read(place, TensorMap, "rank"), 1)
    conditions = (
        known,
        writer.compare("eq", rank, writer.read(operation, Operation, "rank")),
        writer.compare("eq", interleave, 0),
        writer.compare("ule", swizzle, _WIDEST_SWIZZLE),
        writer.compare("eq", ragged, 0),
    )
    simple = dimensions[0].simple
    for condition in (*conditions, *(dimension.simple for dimension in dimensions[1:])):
        simple = writer.both(simple, condition)
    with writer.when(writer.invert(simple)):
        refuse(writer, context, "unknown_map")
    return shape, simple


def _element_bits(writer: Writer, number: Value) -> tuple[Value, Value]:
    """Logarithm of the bytes of a type's elements, and whether it is implemented."""
    sizes = [_UNKNOWN if size is None else size for size in _SIZES]
    table = sum(size << 4 * k for k, size in enumerate(sizes))
    listed = writer.compare("ult", number, len(_SIZES))
    shift = writer.select(listed, writer.mul(number, 4), i64(0))
    bits = writer.both(writer.binary("lshr", i64(table), shift), _UNKNOWN)
    known = writer.both(listed, writer.compare("ne", bits, _UNKNOWN))
    return writer.both(bits, 3), known


def _dimension(writer: Writer, place: Value, operation: Value, index: int) -> _Dimension:
    there = writer.compare("ugt", writer.read(operation, Operation, "rank"), index)

    def entry(base: Value, structure: type, name: str, at: int, element: str) -> Value:
        start = writer.field(base, structure, name)
        return writer.load(element, writer.item(start, element, at), 4)

    box, length, step = (
        entry(place, TensorMap, name, index, "i32")
        for name in ("box_dim", "global_dim", "element_stride")
    )
    origin = entry(operation, Operation, "coordinates", index, "i32")
    stride = entry(place, TensorMap, "global_stride", index - 1, "i64") if index else i64(0)
    fits = writer.compare("ult", writer.sub(box, 1), _LARGEST_BOX)
    fits = writer.both(fits, writer.compare("eq", step, 1))
    return _Dimension(
        box=writer.resize(writer.select(there, box, i32(1)), "i64"),
        length=writer.resize(writer.select(there, length, i32(1)), "i64"),
        origin=writer.cast("sext", writer.select(there, origin, i32(0)), "i64"),
        stride=writer.select(there, stride, i64(0)),
        simple=writer.either(fits, writer.invert(there)),
    )
