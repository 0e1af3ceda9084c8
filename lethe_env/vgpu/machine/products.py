"""Products of tiles: the sums of 16 rows at a time, one column after the other."""

from __future__ import annotations

from dataclasses import dataclass

from ..alu.long_sums import FACTORS, ROWS, define_sum, sum_name
from . import tiles
from .emit import Module, Writer
from .values import Value, constant, declared, i64, vector

_ROW = vector("i32", ROWS)


@dataclass(frozen=True, slots=True)
class Tile:
    """A factor as f32 with its exponents, on the stack of a function."""

    values: Value
    exponents: Value

    @staticmethod
    def reserve(writer: Writer, rows: int, depth: int) -> Tile:
        """Room for so many elements."""
        return Tile(*(writer.slot(f"[{rows * depth} x i32]", 64) for _ in range(2)))

    def at(self, writer: Writer, position: Value) -> Tile:
        """The same from a position on."""
        places = (self.values, self.exponents)
        return Tile(*(writer.item(place, "i32", position) for place in places))

    def find_exponents(self, writer: Writer, source: str, count: Value) -> Value:
        """Fill in the exponents; whether f32 is too narrow for some element, `i1`."""
        if FACTORS[source].integer:
            return constant("i1", 0)
        name = tiles.exponents(writer.module, source)
        return writer.call("i1", name, self.values, self.exponents, count)


def multiply(
    writer: Writer,
    source: str,
    left: Tile,
    right: Tile,
    rows: int | Value,
    wide: Value,
    target: Value,
    columns: Value,
    target_step: int,
    fresh: Value,
) -> None:
    """Add a product to 16 rows of a target.

    Args:
        writer: Where to write.
        source: Type of the factors.
        left: Element (row, k) at `rows * k + row`; begins with the first of the 16 rows.
        right: Element (column, k) at `depth * column + k`.
        rows: Rows of the left factor.
        wide: Whether f32 is too narrow.
        target: Sums of the first column, one f32 per row.
        columns: How many there are, `i64`.
        target_step: From one column of the target to the next, in elements.
        fresh: Whether the sums begin at zero, `i1`.
    """
    stride = i64(rows) if isinstance(rows, int) else rows
    shared = (left.values, left.exponents, right.values, right.exponents, target, columns, stride,
              i64(target_step), fresh)  # fmt: skip
    with writer.when(wide):
        writer.call("void", adder(writer.module, source, wide=True), *shared)
    with writer.when(writer.invert(wide)):
        writer.call("void", adder(writer.module, source, wide=False), *shared)


def adder(module: Module, source: str, wide: bool) -> str:
    """The function behind `multiply`."""
    define = define_sum(source, wide)
    depth = FACTORS[source].depth

    def build(writer: Writer, left: Value, left_exponents: Value, right: Value,
              right_exponents: Value, target: Value, columns: Value, stride: Value,
              step: Value, fresh: Value) -> None:  # fmt: skip
        zero = constant(_ROW, 0)
        with writer.repeat(columns) as column:
            place = writer.item(target, "i32", writer.mul(column, step))
            arguments = [writer.select(fresh, zero, writer.load(_ROW, place, 4))]
            first = writer.mul(column, depth)
            for k in range(depth):
                rows = writer.mul(stride, k)
                at = writer.add(first, k)
                for tile in (left, left_exponents):
                    arguments.append(writer.load(_ROW, writer.item(tile, "i32", rows), 4))
                for tile in (right, right_exponents):
                    item = writer.load("i32", writer.item(tile, "i32", at))
                    arguments.append(writer.splat(item, ROWS))
            total = tiles.call_definition(writer, define, arguments, ROWS)
            writer.store(total, place, 4)
        writer.give()

    name = f"product.{sum_name(source)}.{'wide' if wide else 'usual'}"
    parameters = declared(
        "ptr left, ptr left_exponents, ptr right, ptr right_exponents, ptr target, i64 "
        "columns, i64 stride, i64 step, i1 fresh"
    )
    return module.function(name, "void", parameters, build)
