"""What the instruction descriptor of a `tcgen05.mma` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..ptx.constants import possible_values
from ..ptx.model import Instruction, Kernel

_FORMATS: Mapping[str, Mapping[int, str]] = {
    "kind::f16": {0: "f16", 1: "bf16"},
    "kind::tf32": {2: "tf32"},
    "kind::f8f6f4": {0: "e4m3", 1: "e5m2"},
}
"""What an instruction descriptor calls them."""

NEGATE_LEFT, NEGATE_RIGHT = 1 << 13, 1 << 14
"""Bits that turn the sign of a factor; the only ones that may not be known beforehand."""

PAIR = "cta_group::2"
"""Modifier of what two blocks of a cluster do together."""

_F32_RESULT = 1
_WIDEST, _TALLEST = 256, 128
_PAIR_COLUMNS = 16
"""Of a product of two blocks, the columns are a multiple of this."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What an instruction descriptor says."""

    left: str
    right: str
    left_across: bool
    right_across: bool
    rows: int
    columns: int
    """Of the whole product, which may be that of two blocks."""


def shape_of(kernel: Kernel, instruction: Instruction) -> Shape | None:
    """What a product's instruction descriptor says, if that is known and implemented."""
    values = possible_values(kernel, instruction.operands[3])
    formats = _FORMATS.get(instruction.opcode[3], {})
    kinds = {value & ~(NEGATE_LEFT | NEGATE_RIGHT) for value in values}
    if len(kinds) != 1:
        return None
    (value,) = kinds

    def field(at: int, bits: int) -> int:
        return (value >> at) & ((1 << bits) - 1)

    left, right = formats.get(field(7, 3)), formats.get(field(10, 3))
    others = field(0, 4) | field(23, 1) | field(29, 3)
    rows, columns = 16 * field(24, 5), 8 * field(17, 6)
    heights = (_TALLEST, 2 * _TALLEST) if PAIR in instruction.opcode else (_TALLEST // 2, _TALLEST)
    fits = rows in heights and 8 <= columns <= _WIDEST
    if PAIR in instruction.opcode:
        fits = fits and columns % _PAIR_COLUMNS == 0
    if others or field(4, 2) != _F32_RESULT or left is None or right is None or not fits:
        return None
    return Shape(left, right, bool(field(15, 1)), bool(field(16, 1)), rows, columns)
