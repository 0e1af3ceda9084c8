"""`wgmma`: products of four warps, whose factors lie in shared memory or registers.

Each warp computes its own 16 rows where the instruction is issued.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..alu.long_sums import FACTORS, ROWS
from ..ptx.model import Immediate, Instruction, Operand, Vector
from . import tiles
from .dispatch import push, submit
from .emit import Module, Writer
from .groups import close_group, wait_for_groups
from .layout import Context, Fiber, Site
from .lowering import Lowering, take_operands
from .products import Tile, multiply
from .units import Kind, Operation
from .values import LANES, Value, constant, declared, i32, i64, vector

SOURCES = {
    ("f32", "f16", "f16"): "f16",
    ("f32", "bf16", "bf16"): "bf16",
    ("f32", "tf32", "tf32"): "tf32",
    ("f32", "e5m2", "e5m2"): "e5m2.short",
    ("f32", "e4m3", "e4m3"): "e4m3.short",
    ("f16", "f16", "f16"): "f16.half",
    ("s32", "s8", "s8"): "s8",
    ("s32", "u8", "u8"): "u8",
}
"""By the types of the result and the factors."""

_NUMBERS = {source: number for number, source in enumerate(SOURCES.values())}
"""By which an `Operation` names them."""

_HALF = "f16.half"
"""Two of its results lie in a register."""

_WIDEST = 256
_GROUP = 8
"""Columns whose results fill four registers of a warp."""


def lower_warpgroup(lowering: Lowering, instruction: Instruction) -> None:
    """Write `wgmma` and what orders it."""
    match instruction.opcode[1:]:
        case ("fence", "sync", "aligned"):
            return
        case ("commit_group", "sync", "aligned"):
            close_group(lowering, instruction, "product_group")
        case ("wait_group", "sync", "aligned"):
            wait_for_groups(lowering, instruction, "product_group")
        case ("mma_async", "sync", "aligned", shape, *types):
            _lower_product(lowering, instruction, shape, tuple(types))
        case _:
            raise lowering.unsupported(instruction)


def _lower_product(
    lowering: Lowering, instruction: Instruction, shape: str, types: tuple[str, ...]
) -> None:
    source = SOURCES.get(types)
    sizes = re.fullmatch(r"m64n(\d+)k(\d+)", shape)
    if source is None or sizes is None:
        raise lowering.unsupported(instruction)
    columns, depth = int(sizes[1]), int(sizes[2])
    if depth != FACTORS[source].depth or columns % _GROUP or not 0 < columns <= _WIDEST:
        raise lowering.unsupported(instruction)
    target, left, right, keep, *rest = take_operands(instruction, 4, more=True)
    across = _modifiers(lowering, instruction, source, left, rest)
    count = columns // 4 if source == _HALF else columns // 2
    if not isinstance(target, Vector) or len(target.items) != count:
        raise lowering.unsupported(instruction, "its result")
    registers, writer = lowering.registers, lowering.writer
    results = writer.slot(f"[{count * LANES} x i32]", 64)
    for index, item in enumerate(target.items):
        place = writer.item(results, vector("i32"), index)
        writer.store(registers.read(item, "i32", lanes=True), place, 64)
    fragments = Value("ptr", "null")
    descriptor = i64(0)
    if isinstance(left, Vector):
        fragments = _stored_fragments(lowering, instruction, left)
    else:
        descriptor = _scalar(lowering, left, "i64")
    fresh = writer.invert(_scalar(lowering, keep, "i1"))
    name = write_worker(lowering.module, source)
    arguments = (results, fragments, descriptor, _scalar(lowering, right, "i64"), i64(columns),
                 fresh, *(constant("i1", int(flag)) for flag in across),
                 lowering.site(instruction))  # fmt: skip
    guard = registers.guard(instruction)
    with writer.when(writer.any(registers.active(instruction))):
        writer.call("void", name, lowering.context, lowering.fiber, *arguments)
    for index, item in enumerate(target.items):
        place = writer.item(results, vector("i32"), index)
        registers.write(item, writer.load(vector("i32"), place, 64), guard)


def _modifiers(
    lowering: Lowering, instruction: Instruction, source: str, left: Operand, rest: list[Operand]
) -> tuple[bool, bool]:
    """Whether chunks of the factors go across rows; negated factors are refused."""
    values = [item.value if isinstance(item, Immediate) else -1 for item in rest]
    expected = 2
    if FACTORS[source].bits == 16:
        expected = 3 if isinstance(left, Vector) else 4
    if FACTORS[source].integer and not values:
        return False, False
    if len(values) != expected or values[:2] != [1, 1] or not set(values[2:]) <= {0, 1}:
        raise lowering.unsupported(instruction, "its factors' signs or order")
    flags = [bool(value) for value in values[2:]]
    flags = [False] * (2 - len(flags)) + flags
    return flags[0], flags[1]


def _stored_fragments(lowering: Lowering, instruction: Instruction, left: Vector) -> Value:
    writer = lowering.writer
    if len(left.items) != 4:
        raise lowering.unsupported(instruction, "its left factor")
    place = writer.slot(f"[{4 * LANES} x i32]", 64)
    for index, item in enumerate(left.items):
        value = lowering.registers.read(item, "i32", lanes=True)
        writer.store(value, writer.item(place, vector("i32"), index), 64)
    return place


def _scalar(lowering: Lowering, operand: Operand, element: str) -> Value:
    """A value that all lanes of the warp have in common by contract."""
    value = lowering.registers.read(operand, element)
    return lowering.writer.extract(value, 0) if value.type.startswith("<") else value


def write_worker(module: Module, source: str) -> str:
    """The function of one warp; see `_lower_product` for its arguments."""
    depth = FACTORS[source].depth
    kind = source.partition(".")[0]
    half = source == _HALF
    registers = 2 if half else 4
    take = _take_halves if half else _take_columns
    give = _give_halves if half else _give_columns

    def build(writer: Writer, context: Value, fiber: Value, results: Value, fragments: Value,
              left: Value, right: Value, columns: Value, fresh: Value, left_across: Value,
              right_across: Value, site: Value) -> None:  # fmt: skip
        rows = Tile.reserve(writer, ROWS, depth)
        others = Tile.reserve(writer, _WIDEST, depth)
        given = writer.compare("ne", writer.cast("ptrtoint", fragments, "i64"), 0)
        with writer.when(given):
            _place_fragments(writer, kind, fragments, rows.values)
        factors = _Factors(left, right, columns, left_across, right_across, writer.invert(given))
        factors.read(writer, context, source, site, rows, others)
        factors.hand_over(writer, context, fiber, source, site)
        wide = rows.find_exponents(writer, source, i64(ROWS * depth))
        odd = others.find_exponents(writer, source, writer.mul(columns, depth))
        wide = writer.either(wide, odd)
        work = writer.slot(f"[{_GROUP * ROWS} x i32]", 64)
        with writer.repeat(writer.shift_right(columns, 3)) as group:
            own = writer.item(results, f"[{registers * LANES} x i32]", group)
            take(writer, own, work)
            first = writer.mul(group, _GROUP * depth)
            part = Tile(*(writer.item(place, "i32", first)
                          for place in (others.values, others.exponents)))  # fmt: skip
            multiply(writer, source, rows, part, ROWS, wide, work, i64(_GROUP), ROWS, fresh)
            give(writer, work, own)
        writer.give()

    parameters = declared(
        "ptr context, ptr fiber, ptr results, ptr fragments, i64 left, i64 right, i64 "
        "columns, i1 fresh, i1 left_across, i1 right_across, i32 site"
    )
    return module.function(f"wgmma.{source}", "void", parameters, build)


@dataclass(frozen=True, slots=True)
class _Factors:
    """Where the factors of one warp's product lie in shared memory."""

    left: Value
    right: Value
    columns: Value
    left_across: Value
    right_across: Value
    left_is_there: Value
    """Not in registers, `i1`."""

    def read(
        self, writer: Writer, context: Value, source: str, site: Value, rows: Tile, others: Tile
    ) -> None:
        """Fetch them, with all checks."""
        depth = FACTORS[source].depth
        name = tiles.reader(writer.module, source.partition(".")[0])
        fiber = writer.read(context, Context, "current")
        warp = writer.resize(writer.both(writer.read(fiber, Fiber, "warp"), 3), "i64")
        with writer.when(self.left_is_there):
            writer.call("void", name, context, context, self.left, swizzle(writer, self.left), site,
                        writer.mul(warp, ROWS), i64(ROWS), self.left_across, rows.values, i64(1),
                        i64(ROWS))  # fmt: skip
        writer.call("void", name, context, context, self.right, swizzle(writer, self.right), site,
                    i64(0), self.columns, self.right_across, others.values, i64(depth),
                    i64(1))  # fmt: skip

    def hand_over(
        self, writer: Writer, context: Value, fiber: Value, source: str, site: Value
    ) -> None:
        """Until its group is waited for, the product may read them again."""
        window = writer.field(context, Context, "shared_window")
        with writer.when(writer.compare("ne", writer.read(window, Site, "shadow"), 0)):
            own = push(writer, context, fiber, Kind.FACTORS, site)
            flags = i32(0)
            for bit, flag in enumerate((self.left_across, self.right_across, self.left_is_there)):
                one = writer.shift_left(writer.resize(flag, "i32"), bit)
                flags = writer.either(flags, one)
            fields = {
                "left": self.left,
                "right": self.right,
                "columns": writer.resize(self.columns, "i32"),
                "sources": _NUMBERS[source],
                "flags": flags,
                "group": writer.read(fiber, Fiber, "product_group"),
            }
            for name, value in fields.items():
                writer.write(own, Operation, name, value)
            submit(writer, context)


def look_again(writer: Writer, context: Value, operation: Value) -> None:
    """Write what happens to a product's factors when it must be done at last."""
    flags, columns = (writer.read(operation, Operation, name) for name in ("flags", "columns"))
    across = [writer.compare("ne", writer.both(flags, 1 << bit), 0) for bit in range(3)]
    left, right = (writer.read(operation, Operation, name) for name in ("left", "right"))
    factors = _Factors(left, right, writer.resize(columns, "i64"), *across)
    number = writer.read(operation, Operation, "sources")
    site = writer.read(operation, Operation, "site")
    for source, own in _NUMBERS.items():
        with writer.when(writer.compare("eq", number, own)):
            depth = FACTORS[source].depth
            rows = Tile.reserve(writer, ROWS, depth)
            others = Tile.reserve(writer, _WIDEST, depth)
            factors.read(writer, context, source, site, rows, others)


def swizzle(writer: Writer, descriptor: Value) -> Value:
    """Logarithm of the chunks in a row of an atom: modes 0 to 3 are none, 128, 64 and 32 bytes."""
    mode = writer.shift_right(descriptor, 62)
    return writer.select(writer.compare("eq", mode, 0), i64(0), writer.sub(i64(4), mode))


def _place_fragments(writer: Writer, source: str, fragments: Value, place: Value) -> None:
    """Registers to elements.

    Register r holds four bytes of row `lane / 4 + 8 (r % 2)` from `4 (lane % 4) + 16 (r / 2)` on.
    """
    bits = FACTORS[source].bits
    each = 32 // bits
    define = tiles.define_values(source, ROWS)
    words = vector("i32", LANES)
    for upper in range(2):
        pair = [writer.load(words, writer.item(fragments, words, 2 * upper + half), 64)
                for half in range(2)]  # fmt: skip
        for member in range(4):
            rows = [4 * row + member for row in range(8)]
            column = writer.shuffle(pair[0], rows + [LANES + lane for lane in rows], pair[1])
            for part in range(each):
                raw = writer.resize(writer.shift_right(column, part * bits), f"i{bits}")
                values = tiles.call_definition(writer, define, [raw], ROWS)
                k = (4 * upper + member) * each + part
                writer.store(values, writer.item(place, "i32", k * ROWS), 64)


def _take_columns(writer: Writer, own: Value, work: Value) -> None:
    """Four registers to eight columns of 16 rows."""
    words = vector("i32", LANES)
    registers = [writer.load(words, writer.item(own, words, r), 64) for r in range(4)]
    for column in range(_GROUP):
        lanes = [4 * row + column // 2 for row in range(8)]
        picked = lanes + [LANES + lane for lane in lanes]
        odd = column % 2
        rows = writer.shuffle(registers[odd], picked, registers[2 + odd])
        writer.store(rows, writer.item(work, "i32", column * ROWS), 64)


def _take_halves(writer: Writer, own: Value, work: Value) -> None:
    """Two registers of pairs of f16 to eight columns of 16 rows, as f32."""
    words = vector("i32", LANES)
    registers = [writer.load(words, writer.item(own, words, half), 64) for half in range(2)]
    define = tiles.define_values("f16", ROWS)
    for column in range(_GROUP):
        lanes = [4 * row + column // 2 for row in range(8)]
        picked = lanes + [LANES + lane for lane in lanes]
        rows = writer.shuffle(registers[0], picked, registers[1])
        raw = writer.resize(writer.shift_right(rows, 16 * (column % 2)), "i16")
        values = tiles.call_definition(writer, define, [raw], ROWS)
        writer.store(values, writer.item(work, "i32", column * ROWS), 64)


def _give_halves(writer: Writer, work: Value, own: Value) -> None:
    """The inverse of `_take_halves`; the values are exact in f16."""
    row = vector("float", ROWS)
    columns = [writer.load(row, writer.item(work, row, c), 64) for c in range(_GROUP)]
    pairs = []
    for first in range(0, _GROUP, 2):
        low, high = (_half_bits(writer, columns[first + odd]) for odd in range(2))
        pairs.append(writer.either(low, writer.shift_left(high, 16)))
    low = writer.shuffle(pairs[0], range(2 * ROWS), pairs[1])
    high = writer.shuffle(pairs[2], range(2 * ROWS), pairs[3])
    for half in range(2):
        lanes = [(lane % 4) * ROWS + 8 * half + lane // 4 for lane in range(LANES)]
        value = writer.shuffle(low, lanes, high)
        writer.store(value, writer.item(own, vector("i32", LANES), half), 64)


def _half_bits(writer: Writer, value: Value) -> Value:
    """An f32 that f16 holds as its bits, in 32; a NaN is the canonical one."""
    narrow = writer.cast("fptrunc", value, vector("half", ROWS))
    bits = writer.cast("bitcast", narrow, vector("i16", ROWS))
    unordered = writer.op(vector("i1", ROWS), f"fcmp uno {value}, {value.text}")
    bits = writer.select(unordered, constant(bits.type, 0x7FFF), bits)
    return writer.resize(bits, "i32")


def _give_columns(writer: Writer, work: Value, own: Value) -> None:
    """The inverse of `_take_columns`."""
    row = vector("i32", ROWS)
    columns = [writer.load(row, writer.item(work, row, c), 64) for c in range(_GROUP)]
    for odd in range(2):
        low = writer.shuffle(columns[odd], range(2 * ROWS), columns[odd + 2])
        high = writer.shuffle(columns[odd + 4], range(2 * ROWS), columns[odd + 6])
        for half in range(2):
            lanes = [(lane % 4) * ROWS + 8 * half + lane // 4 for lane in range(LANES)]
            value = writer.shuffle(low, lanes, high)
            place = writer.item(own, vector("i32", LANES), 2 * half + odd)
            writer.store(value, place, 64)
