"""Reading and writing host memory for the lanes of a warp, without any checks."""

from __future__ import annotations

from collections.abc import Sequence

from . import lanes
from .emit import Module, Writer
from .values import LANES, Value, constants, i32, i64, struct_type, vector

ADDRESSES = vector("i64")
MASK = vector("i1")
LINE_BYTES = 64
_KEEP, _DATA = 3, 1
"""Arguments of `llvm.prefetch`: into all caches, and no code."""


def result_types(width: int, count: int) -> list[str]:
    """Types of the registers that one access of `count` elements moves."""
    return [vector(f"i{width}")] * count


def piece_reader(module: Module, width: int, count: int) -> str:
    """`read(place, mask, old…) -> values`: lanes side by side from `place` on."""

    def build(writer: Writer, place: Value, mask: Value, *old: Value) -> None:
        whole, partial = writer.name("whole"), writer.name("partial")
        writer.branch(writer.compare("eq", writer.bits(mask), -1), whole, partial)
        writer.label(whole)
        wide = writer.load(vector(f"i{width}", LANES * count), place, width // 8)
        writer.give(writer.pack(split(writer, wide, count)))
        writer.label(partial)
        wide_mask = _repeat_lanes(writer, mask, count)
        wide = writer.masked_load(place, wide_mask, join(writer, list(old)), width // 8)
        writer.give(writer.pack(split(writer, wide, count)))

    parameters = [("ptr", "place"), (MASK, "mask")]
    parameters += [(type_, f"old{j}") for j, type_ in enumerate(result_types(width, count))]
    result = struct_type(result_types(width, count))
    return module.function(f"host.take.{width}x{count}", result, parameters, build)


def piece_writer(module: Module, width: int, count: int) -> str:
    """`write(place, mask, values…)`: lanes side by side from `place` on."""

    def build(writer: Writer, place: Value, mask: Value, *values: Value) -> None:
        whole, partial = writer.name("whole"), writer.name("partial")
        wide = join(writer, list(values))
        writer.branch(writer.compare("eq", writer.bits(mask), -1), whole, partial)
        writer.label(whole)
        writer.store(wide, place, width // 8)
        writer.give()
        writer.label(partial)
        writer.masked_store(wide, place, _repeat_lanes(writer, mask, count), width // 8)
        writer.give()

    parameters = [("ptr", "place"), (MASK, "mask")]
    parameters += [(type_, f"value{j}") for j, type_ in enumerate(result_types(width, count))]
    return module.function(f"host.put.{width}x{count}", "void", parameters, build)


def prefetch(writer: Writer, place: Value, size_bytes: int, write: bool = False) -> None:
    """Ask for memory that will be wanted soon; any address will do."""
    for offset in range(0, size_bytes, LINE_BYTES):
        arguments = i32(int(write)), i32(_KEEP), i32(_DATA)
        writer.call("void", "llvm.prefetch.p0", writer.at(place, offset), *arguments)


def read_single(
    writer: Writer, place: Value, mask: Value, old: Sequence[Value], width: int
) -> list[Value]:
    """The elements at one place, the same for all lanes in the mask."""
    items = [
        writer.load(f"i{width}", writer.at(place, j * width // 8), width // 8)
        for j in range(len(old))
    ]
    return [writer.select(mask, writer.splat(i), o) for i, o in zip(items, old, strict=True)]


def reader(module: Module, width: int, count: int) -> str:
    """The function that reads `count` adjacent elements of `width` bits per lane.

    It takes host addresses, a mask, and one vector per element for the lanes that are off.
    """

    def build(writer: Writer, addresses: Value, mask: Value, *old: Value) -> None:
        bits = writer.bits(mask)
        start = _start_if_contiguous(writer, addresses, mask, bits, width * count // 8)
        tight, scattered = writer.name("tight"), writer.name("scattered")
        writer.branch(writer.compare("ne", start, 0), tight, scattered)
        writer.label(tight)
        place = writer.cast("inttoptr", start, "ptr")
        read = piece_reader(module, width, count)
        writer.give(writer.call(struct_type([v.type for v in old]), read, place, mask, *old))
        writer.label(scattered)
        with writer.when(writer.compare("eq", bits, -1)):
            found = lanes.take(writer, writer.variable(addresses), width * count // 8)
            wide = writer.cast("bitcast", found, vector(f"i{width}", LANES * count))
            writer.give(writer.pack(split(writer, wide, count)))
            writer.label(writer.name("given"))
        gather = _gather if width >= 32 else _gather_by_lane
        writer.give(writer.pack(gather(writer, addresses, mask, old, width)))

    parameters = [(ADDRESSES, "addresses"), (MASK, "mask")]
    parameters += [(type_, f"old{j}") for j, type_ in enumerate(result_types(width, count))]
    result = struct_type(result_types(width, count))
    return module.function(f"host.read.{width}x{count}", result, parameters, build)


def writer_of(module: Module, width: int, count: int) -> str:
    """The function that writes `count` adjacent elements of `width` bits per lane.

    Where lanes overlap, the highest lane wins.
    """

    def build(writer: Writer, addresses: Value, mask: Value, *values: Value) -> None:
        bits = writer.bits(mask)
        start = _start_if_contiguous(writer, addresses, mask, bits, width * count // 8)
        tight, scattered = writer.name("tight"), writer.name("scattered")
        writer.branch(writer.compare("ne", start, 0), tight, scattered)
        writer.label(tight)
        place = writer.cast("inttoptr", start, "ptr")
        write = piece_writer(module, width, count)
        writer.call("void", write, place, mask, *values)
        writer.give()
        writer.label(scattered)
        with writer.when(writer.compare("eq", bits, -1)):
            lanes.put(writer, writer.variable(addresses), join(writer, list(values)))
            writer.give()
            writer.label(writer.name("given"))
        scatter = _scatter if width >= 32 else _scatter_by_lane
        scatter(writer, addresses, mask, list(values), width)
        writer.give()

    parameters = [(ADDRESSES, "addresses"), (MASK, "mask")]
    parameters += [(type_, f"value{j}") for j, type_ in enumerate(result_types(width, count))]
    return module.function(f"host.write.{width}x{count}", "void", parameters, build)


def _start_if_contiguous(
    writer: Writer, addresses: Value, mask: Value, bits: Value, step_bytes: int
) -> Value:
    """Address of lane 0 if the active lanes lie side by side, else 0; some lane is active."""
    lane = writer.resize(writer.call("i32", "llvm.cttz.i32", bits, Value("i1", "false")), "i64")
    lane = writer.both(lane, LANES - 1)
    first = writer.sub(writer.extract(addresses, lane), writer.mul(lane, step_bytes))
    steps = constants("i64", [step_bytes * j for j in range(LANES)])
    apart = writer.compare("ne", addresses, writer.add(writer.splat(first), steps))
    broken = writer.any(writer.both(apart, mask))
    return writer.select(broken, i64(0), first)


def split(writer: Writer, wide: Value, count: int) -> list[Value]:
    """Element j of every lane, for each j: the inverse of `join`."""
    if count == 1:
        return [wide]
    return [writer.shuffle(wide, range(j, LANES * count, count)) for j in range(count)]


def join(writer: Writer, values: Sequence[Value]) -> Value:
    """Interleave: element j of lane l goes to position `l * count + j`."""
    count, joined = len(values), list(values)
    size = LANES
    while len(joined) > 1:
        joined = [
            writer.shuffle(a, range(2 * size), b)
            for a, b in zip(joined[::2], joined[1::2], strict=True)
        ]
        size *= 2
    if count == 1:
        return joined[0]
    order = [(k % count) * LANES + k // count for k in range(LANES * count)]
    return writer.shuffle(joined[0], order)


def _repeat_lanes(writer: Writer, mask: Value, count: int) -> Value:
    if count == 1:
        return mask
    return writer.shuffle(mask, [k // count for k in range(LANES * count)])


def _pointers(writer: Writer, addresses: Value, offset_bytes: int) -> Value:
    moved = writer.add(addresses, offset_bytes) if offset_bytes else addresses
    return writer.cast("inttoptr", moved, vector("ptr"))


def _gather(
    writer: Writer, addresses: Value, mask: Value, old: tuple[Value, ...], width: int
) -> list[Value]:
    type_ = vector(f"i{width}")
    name = f"llvm.masked.gather.v{LANES}i{width}.v{LANES}p0"
    writer.module.declare(name, type_, [vector("ptr"), MASK, type_])
    gathered = []
    for j, previous in enumerate(old):
        places = _pointers(writer, addresses, j * width // 8)
        aligned = f"{vector('ptr')} align {width // 8} {places.text}"
        gathered.append(writer.op(type_, f"call {type_} @{name}({aligned}, {mask}, {previous})"))
    return gathered


def _scatter(
    writer: Writer, addresses: Value, mask: Value, values: list[Value], width: int
) -> None:
    type_ = vector(f"i{width}")
    name = f"llvm.masked.scatter.v{LANES}i{width}.v{LANES}p0"
    writer.module.declare(name, "void", [type_, vector("ptr"), MASK])
    for j, value in enumerate(values):
        places = _pointers(writer, addresses, j * width // 8)
        aligned = f"{vector('ptr')} align {width // 8} {places.text}"
        writer.line(f"call void @{name}({value}, {aligned}, {mask})")


def _gather_by_lane(
    writer: Writer, addresses: Value, mask: Value, old: tuple[Value, ...], width: int
) -> list[Value]:
    element = f"i{width}"
    buffers = [writer.variable(value) for value in old]
    where = writer.variable(addresses)
    with writer.lanes(writer.bits(mask)) as lane:
        address = writer.load("i64", writer.item(where, "i64", lane))
        place = writer.cast("inttoptr", address, "ptr")
        for j, buffer in enumerate(buffers):
            item = writer.load(element, writer.at(place, j * width // 8), 1)
            writer.store(item, writer.item(buffer, element, lane))
    return [writer.load(vector(element), buffer) for buffer in buffers]


def _scatter_by_lane(
    writer: Writer, addresses: Value, mask: Value, values: list[Value], width: int
) -> None:
    element = f"i{width}"
    buffers = [writer.variable(value) for value in values]
    where = writer.variable(addresses)
    with writer.lanes(writer.bits(mask)) as lane:
        address = writer.load("i64", writer.item(where, "i64", lane))
        place = writer.cast("inttoptr", address, "ptr")
        for j, buffer in enumerate(buffers):
            item = writer.load(element, writer.item(buffer, element, lane))
            writer.store(item, writer.at(place, j * width // 8), 1)
