"""What all lanes of a warp access, lane after lane, without a loop.

A loop over the bits of a mask keeps what is on its way in memory; here it stays in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .emit import Writer
from .values import LANES, Value, constant, count_of, is_vector, vector

if TYPE_CHECKING:
    from .windows import Access

_WORD_BYTES = 8


def are_all(writer: Writer, access: Access) -> Value:
    """Whether every lane is active, `i1`."""
    return writer.compare("eq", writer.bits(access.mask), -1)


def take(writer: Writer, places: Value, size_bytes: int) -> Value:
    """What every lane finds at its place, side by side.

    Args:
        writer: Where to write.
        places: Where their host addresses lie, `[32 x i64]`.
        size_bytes: For each lane, a power of two.

    Returns:
        Integers, as wide as what a lane finds or 64 bits.
    """
    pieces = [writer.load(_piece(size_bytes), place, 1) for place in each(writer, places)]
    return _joined(writer, pieces)


def put(writer: Writer, places: Value, values: Value) -> None:
    """The inverse of `take`; where lanes overlap, the highest one wins.

    Args:
        writer: Where to write.
        places: See there.
        values: Integers for all lanes, side by side.
    """
    count = count_of(values.type) // LANES
    for lane, place in enumerate(each(writer, places)):
        if count == 1:
            piece = writer.extract(values, lane)
        else:
            piece = writer.shuffle(values, range(lane * count, (lane + 1) * count))
        writer.store(piece, place, 1)


def move(writer: Writer, sources: Value, targets: Value, size_bytes: int) -> None:
    """Copy what every lane has at one place to another; sources and targets do not overlap."""
    pairs = zip(each(writer, sources), each(writer, targets), strict=True)
    for source, target in pairs:
        writer.store(writer.load(_piece(size_bytes), source, 1), target, 1)


def fill(writer: Writer, places: Value, size_bytes: int, byte: int) -> None:
    """Set every byte at the places of the lanes."""
    piece = constant(_piece(size_bytes), _repeated(byte, size_bytes))
    for place in each(writer, places):
        writer.store(piece, place, 1)


def hold(writer: Writer, places: Value, size_bytes: int, byte: int) -> Value:
    """Whether every byte at the places of the lanes is `byte`, which has one bit set; `i1`."""
    type_ = _piece(size_bytes)
    wanted = constant(type_, _repeated(byte, size_bytes))
    found = wanted
    for place in each(writer, places):
        found = writer.both(found, writer.load(type_, place, 1))
    equal = writer.compare("eq", found, wanted)
    if not is_vector(type_):
        return equal
    return writer.compare("eq", writer.bits(equal), -1)


def _piece(size_bytes: int) -> str:
    """The type of what one lane accesses."""
    if size_bytes <= _WORD_BYTES:
        return f"i{8 * size_bytes}"
    return vector("i64", size_bytes // _WORD_BYTES)


def _repeated(byte: int, size_bytes: int) -> int:
    return int.from_bytes(bytes([byte]) * min(size_bytes, _WORD_BYTES), "little")


def each(writer: Writer, places: Value) -> list[Value]:
    """The places of all lanes, as pointers."""
    items = [writer.item(places, "i64", lane) for lane in range(LANES)]
    addresses = [writer.op("i64", f"load i64, {item}") for item in items]
    return [writer.cast("inttoptr", address, "ptr") for address in addresses]


def _joined(writer: Writer, pieces: Sequence[Value]) -> Value:
    if not is_vector(pieces[0].type):
        whole = Value(vector(pieces[0].type), "poison")
        for lane, piece in enumerate(pieces):
            whole = writer.insert(whole, piece, lane)
        return whole
    parts = list(pieces)
    while len(parts) > 1:
        size = 2 * count_of(parts[0].type)
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [writer.shuffle(left, range(size), right) for left, right in pairs]
    return parts[0]
