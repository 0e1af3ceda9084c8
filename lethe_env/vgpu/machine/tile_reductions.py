"""Reductions of tiles into tensors: atomic operations on the elements of 16 bytes."""

from __future__ import annotations

from collections.abc import Iterator

from .atomics import Atomic, warp_function
from .chunks import CHUNK_BYTES
from .emit import Writer
from .refusals import refuse
from .tile_shapes import Shape
from .units import Operation
from .values import LANES, Value, constant, constants, like, vector
from .windows import Access

OPERATIONS = ("add", "min", "max", "and", "or", "xor")
"""By their numbers in an `Operation`."""

_U32, _S32, _U64, _S64, _F16, _F32, _BF16 = 2, 3, 4, 5, 6, 7, 10
"""Numbers of element types in a tensor map."""

_TYPES = {
    "add": {"u32": (_U32, _S32), "u64": (_U64, _S64), "f16": (_F16,), "f32": (_F32,),
            "bf16": (_BF16,)},
    "extremum": {"u32": (_U32,), "s32": (_S32,), "u64": (_U64,), "s64": (_S64,)},
    "bits": {"b32": (_U32, _S32), "b64": (_U64, _S64)},
}  # fmt: skip
_GROUPS = {"add": "add", "min": "extremum", "max": "extremum"}


def update(writer: Writer, operation: Value, access: Access, value: Value, shape: Shape) -> None:
    """Write a reduction.

    Args:
        writer: Where to write.
        operation: The `Operation`.
        access: Of 16 single bytes by as many lanes; those outside the tensor are off.
        value: The bytes that are combined with what is there, `<16 x i8>`.
        shape: Of the tile.
    """
    done = writer.variable(constant("i1", 0))
    chosen = writer.read(operation, Operation, "sources")
    for number, name, type_, kinds in _cases():
        wanted = writer.compare("eq", chosen, number)
        of_type = constant("i1", 0)
        for kind in kinds:
            of_type = writer.either(of_type, writer.compare("eq", shape.element_type, kind))
        with writer.when(writer.both(wanted, of_type)):
            _combine(writer, Atomic(name, type_, "global", 1, False, False), access, value)
            writer.store(constant("i1", 1), done)
    with writer.when(writer.invert(writer.load("i1", done))):
        refuse(writer, access.context, "unknown_map")


def _cases() -> Iterator[tuple[int, str, str, tuple[int, ...]]]:
    for number, name in enumerate(OPERATIONS):
        for type_, kinds in _TYPES[_GROUPS.get(name, "bits")].items():
            yield number, name, type_, kinds


def _combine(writer: Writer, atomic: Atomic, access: Access, value: Value) -> None:
    size = int(atomic.element[1:]) // 8
    count = CHUNK_BYTES // size
    start = writer.splat(writer.extract(access.addresses, 0))
    addresses = writer.add(start, constants("i64", [lane * size for lane in range(LANES)]))
    firsts = [min(lane, count - 1) * size for lane in range(LANES)]
    mask = writer.both(
        writer.shuffle(access.mask, firsts),
        constants("i1", [int(lane < count) for lane in range(LANES)]),
    )
    items = writer.cast("bitcast", value, vector(atomic.element, count))
    spread = writer.shuffle(items, [lane % count for lane in range(LANES)])
    own = Access(addresses, mask, access.window, access.site, access.context)
    name = warp_function(writer.module, atomic)
    writer.call(like(spread.type, atomic.element), name, *own.values(), spread, spread)
