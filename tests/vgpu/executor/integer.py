"""Integer and logical instructions on raw bits, with Python's integers."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from .formats import Bits

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}


def width_of(kind: str) -> int:
    """Bits of a PTX type."""
    if kind == "pred":
        return 1
    return {"f16x2": 32, "bf16x2": 32, "bf16": 16, "tf32": 32}.get(kind) or int(kind[1:])


def truncated(bits: Bits, width: int) -> Bits:
    """The low bits of a register."""
    return bits & np.uint64(2**width - 1)


def numbers(bits: Bits, kind: str) -> list[int]:
    """The integers behind the bits; signed for `s…`."""
    width = width_of(kind)
    values = truncated(bits, width).tolist()
    if kind[0] == "s":
        return [value - 2**width if value >> (width - 1) else value for value in values]
    return values


def from_numbers(values: list[int], width: int) -> Bits:
    """Integers as bits, modulo the width."""
    return np.array([value % 2**width for value in values], np.uint64)


def compare(name: str, kind: str, a: Bits, b: Bits) -> np.ndarray:
    """The truth of a `setp` comparison."""
    pairs = zip(numbers(a, kind), numbers(b, kind), strict=True)
    return np.array([_COMPARISONS[name](x, y) for x, y in pairs])


def arithmetic(name: str, modifiers: set[str], kind: str, operands: list[Bits]) -> Bits:
    """Every integer instruction of one result, `.wide` ones in twice the width."""
    part = modifiers & {"lo", "hi", "wide"}
    modes = modifiers & {"wrap", "clamp", "l", "r", "sat"}
    if modifiers - part - modes or "sat" in modes:
        raise NotImplementedError(f"{name} with {sorted(modifiers)}")
    width = width_of(kind)
    columns = _columns(name, modifiers, kind, operands)
    if name in ("mul", "mad", "madc") and part:
        return _product(part.pop(), kind, columns)
    if name == "shf":
        compute = _funnel(modes)
    else:
        signed_field = name == "bfe" and kind[0] == "s"
        compute = _OPERATIONS["bfe.signed" if signed_field else name]
    return from_numbers([compute(width, *row) for row in zip(*columns, strict=True)], width)


def carry_of(name: str, modifiers: set[str], kind: str, operands: list[Bits]) -> Bits:
    """The carry that `.cc` writes: out of the addition, or the borrow of the subtraction."""
    width = width_of(kind)
    unsigned = "u" + kind[1:]
    columns = [numbers(operand, unsigned) for operand in operands]
    if name.startswith("mad"):
        part = (modifiers & {"lo", "hi"}).pop()
        first = numbers(
            _product(part, kind, _columns(name, modifiers, kind, operands)[:2]), unsigned
        )
        columns = [first, *columns[2:]]
    if name.startswith("sub"):
        return np.array([a < b + sum(c) for a, b, *c in zip(*columns, strict=True)], np.uint64)
    return np.array([sum(row) >> width for row in zip(*columns, strict=True)], np.uint64)


def _columns(name: str, modifiers: set[str], kind: str, operands: list[Bits]) -> list[list[int]]:
    """Operands as integers; shift counts and bit positions are unsigned 32-bit."""
    counts = {"shl": 1, "shr": 1, "bfe": 1, "bfi": 2, "shf": 2}
    plain = counts.get(name, len(operands))
    kinds = [kind if at < plain else "u32" for at in range(len(operands))]
    if "wide" in modifiers and len(operands) > 2:
        kinds[2] = f"{kind[0]}{2 * width_of(kind)}"
    return [numbers(operand, kind) for operand, kind in zip(operands, kinds, strict=True)]


def _product(part: str, kind: str, columns: list[list[int]]) -> Bits:
    width = width_of(kind)
    shift, out = {"lo": (0, width), "hi": (width, width), "wide": (0, 2 * width)}[part]
    rows = zip(*columns, strict=True)
    return from_numbers([(a * b >> shift) + sum(rest) for a, b, *rest in rows], out)


def _quotient(width: int, a: int, b: int) -> int:
    """Truncated towards zero; a division by zero gives all ones here, anything by the ISA."""
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(width: int, a: int, b: int) -> int:
    return a - _quotient(width, a, b) * b if b else a


def _extracted(width: int, a: int, start: int, length: int) -> int:
    start, length = start & 0xFF, length & 0xFF
    if length == 0:
        return 0
    return (a >> start) & (2**length - 1)


def _extracted_signed(width: int, a: int, start: int, length: int) -> int:
    """The field extended by its last bit, or by the register's if the field goes beyond it."""
    start, length = start & 0xFF, length & 0xFF
    if length == 0:
        return 0
    last = min(start + length - 1, width - 1)
    sign = a >> last & 1
    kept = max(last - start + 1, 0)
    return (a >> start & (2**kept - 1)) - (sign << kept)


def _inserted(width: int, field: int, base: int, start: int, length: int) -> int:
    start, length = start & 0xFF, length & 0xFF
    mask = (2**length - 1) << start & (2**width - 1)
    return (field << start & mask) | (base & ~mask)


def _looked_up(width: int, a: int, b: int, c: int, table: int) -> int:
    result = 0
    for bit in range(width):
        index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1)
        result |= (table >> index & 1) << bit
    return result


def _permuted(width: int, a: int, b: int, selector: int) -> int:
    """`prmt` in its default mode: the top bit of each selector replicates the byte's sign."""
    source = (b << 32 | a).to_bytes(8, "little")
    result = 0
    for at in range(4):
        choice = selector >> (4 * at) & 0xF
        byte = source[choice & 7]
        if choice & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << (8 * at)
    return result


def _funnel(modes: set[str]) -> Callable[..., int]:
    def shifted(width: int, low: int, high: int, count: int) -> int:
        count = count % 32 if "wrap" in modes else min(count, 32)
        both = high << 32 | low
        return both << count >> 32 if "l" in modes else both >> count

    return shifted


_OPERATIONS: dict[str, Callable[..., int]] = {
    "add": lambda width, a, b: a + b,
    "sub": lambda width, a, b: a - b,
    "addc": lambda width, a, b, carry: a + b + carry,
    "subc": lambda width, a, b, borrow: a - b - borrow,
    "neg": lambda width, a: -a,
    "abs": lambda width, a: abs(a),
    "min": lambda width, *values: min(values),
    "max": lambda width, *values: max(values),
    "div": _quotient,
    "rem": _remainder,
    "sad": lambda width, a, b, c: abs(a - b) + c,
    "and": lambda width, a, b: a & b,
    "or": lambda width, a, b: a | b,
    "xor": lambda width, a, b: a ^ b,
    "not": lambda width, a: ~a,
    "cnot": lambda width, a: int(a == 0),
    "shl": lambda width, a, count: a << min(count, width),
    "shr": lambda width, a, count: a >> min(count, width),
    "popc": lambda width, a: a.bit_count(),
    "clz": lambda width, a: width - a.bit_length(),
    "brev": lambda width, a: int(f"{a:0{width}b}"[::-1], 2),
    "lop3": _looked_up,
    "prmt": _permuted,
    "bfi": _inserted,
    "bfe": _extracted,
    "bfe.signed": _extracted_signed,
}
