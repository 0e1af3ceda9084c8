"""Bits: logic, shifts, fields, permutations, counting, selection and moves."""

from __future__ import annotations

from collections.abc import Mapping

from .builder import Builder, Value
from .integer import Definer
from .opcode import Modifiers

_LOGIC_TYPES = ("b16", "b32", "b64", "pred")
_MOVE_TYPES = (
    *("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"),
    *("f16", "f32", "f64", "bf16", "pred"),
)


def logic(code: Modifiers, build: Builder) -> None:
    """`and`, `or`, `xor`."""
    scalar = code.scalar(*_LOGIC_TYPES)
    code.finish()
    a, b = build.operand(scalar.register), build.operand(scalar.register)
    build.result(build.binary(code.opcode[0], a, b))


def complement(code: Modifiers, build: Builder) -> None:
    """`not`."""
    scalar = code.scalar(*_LOGIC_TYPES)
    code.finish()
    a = build.operand(scalar.register)
    build.result(build.binary("xor", a, -1))


def logical_not(code: Modifiers, build: Builder) -> None:
    """`cnot`: one where the operand is zero."""
    scalar = code.scalar("b16", "b32", "b64")
    code.finish()
    a = build.operand(scalar.register)
    build.result(build.resize(build.compare("eq", a, 0), a.bits))


def shift(code: Modifiers, build: Builder) -> None:
    """`shl`, `shr`: amounts above the width act as the width."""
    left = code.opcode[0] == "shl"
    unsigned = ("b16", "b32", "b64")
    right_only = ("u16", "u32", "u64", "s16", "s32", "s64")
    scalar = code.scalar(*unsigned, *(() if left else right_only))
    code.finish()
    a, amount = build.operand(scalar.register), build.operand("b32")
    if scalar.signed:
        clamped = build.intrinsic("umin", amount, build.constant(scalar.bits - 1, amount))
        build.result(build.binary("ashr", a, build.resize(clamped, scalar.bits)))
        return
    build.result(_clamped_shift(build, "shl" if left else "lshr", a, amount))


def _clamped_shift(build: Builder, operation: str, a: Value, amount: Value) -> Value:
    """A shift that is zero for amounts from the width on; the amount is unsigned, any width."""
    inside = build.compare("ult", amount, a.bits)
    safe = build.resize(build.select(inside, amount, 0), a.bits)
    return build.select(inside, build.binary(operation, a, safe), 0)


def funnel_shift(code: Modifiers, build: Builder) -> None:
    """`shf.l`, `shf.r`, `.wrap` or `.clamp`: 32 bits of the pair (b, a)."""
    code.type_name("b32")
    direction = code.choice("l", "r")
    mode = code.choice("wrap", "clamp")
    code.finish()
    a, b, amount = (build.operand("b32") for _ in range(3))
    low, high = build.resize(a, 64), build.binary("shl", build.resize(b, 64), 32)
    pair = build.binary("or", high, low)
    if mode == "wrap":
        bounded = build.binary("and", amount, 31)
    else:
        bounded = build.intrinsic("umin", amount, build.constant(32, amount))
    count = build.resize(bounded, 64)
    if direction == "r":
        build.result(build.resize(build.binary("lshr", pair, count), 32))
        return
    build.result(build.resize(build.binary("lshr", build.binary("shl", pair, count), 32), 32))


def lookup_3(code: Modifiers, build: Builder) -> None:
    """`lop3.b32`: bit `4a + 2b + c` of the table, taken from the fourth operand."""
    code.type_name("b32")
    code.finish()
    inputs = [build.operand("b32") for _ in range(3)]
    table = build.operand("b32")
    result = build.constant(0, table)
    inverted = [build.binary("xor", value, -1) for value in inputs]
    for row in range(8):
        picked = build.binary("shl", table, 31 - row)
        term = build.binary("ashr", picked, 31)
        for position in range(3):
            source = inputs if row >> (2 - position) & 1 else inverted
            term = build.binary("and", term, source[position])
        result = build.binary("or", result, term)
    build.result(result)


_PERMUTATIONS = {
    "f4e": 0x6543_5432_4321_3210,
    "b4e": 0x0123_7012_6701_5670,
    "rc8": 0x3333_2222_1111_0000,
    "ecl": 0x3333_3222_3211_3210,
    "ecr": 0x3210_2210_1110_0000,
    "rc16": 0x3232_1010_3232_1010,
}
"""Selectors of `prmt`'s modes, 16 bits for each value of the last operand's two low bits."""


def permute_bytes(code: Modifiers, build: Builder) -> None:
    """`prmt.b32`: four selectors of 4 bits, the top one replicates the sign.

    With a mode, the last operand picks one of four selections.
    """
    mode = code.choice(*_PERMUTATIONS, default="")
    code.type_name("b32")
    code.finish()
    a, b, selectors = (build.operand("b32") for _ in range(3))
    if mode:
        table = build.constant(_PERMUTATIONS[mode], "i64")
        place = build.binary("shl", build.resize(build.binary("and", selectors, 3), 64), 4)
        selectors = build.resize(build.binary("lshr", table, place), 32)
    pair = build.binary("or", build.binary("shl", build.resize(b, 64), 32), build.resize(a, 64))
    result = build.constant(0, a)
    for position in range(4):
        selector = build.binary("lshr", selectors, 4 * position)
        distance = build.binary("shl", build.binary("and", selector, 7), 3)
        byte = build.resize(build.binary("lshr", pair, build.resize(distance, 64)), 8)
        sign = build.binary("ashr", byte, 7)
        replicate = build.compare("ne", build.binary("and", selector, 8), 0)
        chosen = build.resize(build.select(replicate, sign, byte), 32)
        result = build.binary("or", result, build.binary("shl", chosen, 8 * position))
    build.result(result)


def extract_field(code: Modifiers, build: Builder) -> None:
    """`bfe`: a field of `length` bits from `position`, sign-extended for signed types."""
    scalar = code.scalar("u32", "u64", "s32", "s64")
    code.finish()
    a = build.operand(scalar.register)
    position, length = (build.binary("and", build.operand("b32"), 0xFF) for _ in range(2))
    field = _clamped_shift(build, "lshr", a, position)
    mask = _low_mask(build, a, length)
    value = build.binary("and", field, mask)
    if not scalar.signed:
        build.result(value)
        return
    top = build.binary("sub", build.binary("add", position, length), 1)
    top = build.intrinsic("smin", top, build.constant(scalar.bits - 1, top))
    sign = build.binary("and", _clamped_shift(build, "lshr", a, top), 1)
    present = build.binary("sub", build.constant(scalar.bits, position), position)
    present = build.intrinsic("smax", present, build.constant(0, present))
    kept = _low_mask(build, a, build.intrinsic("umin", length, present))
    fill = build.binary("sub", build.constant(0, a), sign)
    outside = build.binary("and", fill, build.binary("xor", kept, -1))
    extended = build.binary("or", build.binary("and", value, kept), outside)
    build.result(build.select(build.compare("eq", length, 0), 0, extended))


def insert_field(code: Modifiers, build: Builder) -> None:
    """`bfi`: the low `length` bits of `a` into `b` at `position`."""
    scalar = code.scalar("b32", "b64")
    code.finish()
    a, b = build.operand(scalar.register), build.operand(scalar.register)
    position, length = (build.binary("and", build.operand("b32"), 0xFF) for _ in range(2))
    mask = _clamped_shift(build, "shl", _low_mask(build, a, length), position)
    field = build.binary("and", _clamped_shift(build, "shl", a, position), mask)
    kept = build.binary("and", b, build.binary("xor", mask, -1))
    build.result(build.binary("or", kept, field))


def _low_mask(build: Builder, like: Value, length: Value) -> Value:
    """Ones in the `length` lowest bits, all of them from the width on."""
    ones = build.constant(-1, like)
    return build.binary("xor", _clamped_shift(build, "shl", ones, length), -1)


def find_leading(code: Modifiers, build: Builder) -> None:
    """`bfind`: the position of the highest bit that differs from the sign; −1 for none."""
    scalar = code.scalar("u32", "u64", "s32", "s64")
    as_shift = code.flag("shiftamt")
    code.finish()
    a = build.operand(scalar.register)
    if scalar.signed:
        a = build.binary("xor", a, build.binary("ashr", a, scalar.bits - 1))
    zeros = build.resize(build.intrinsic("ctlz", a, flag=False), 32)
    found = build.compare("ne", a, 0)
    if not as_shift:
        zeros = build.binary("sub", build.constant(scalar.bits - 1, zeros), zeros)
    build.result(build.select(found, zeros, -1))


def count_bits(code: Modifiers, build: Builder) -> None:
    """`popc`, `clz`: the result has 32 bits."""
    scalar = code.scalar("b32", "b64")
    code.finish()
    a = build.operand(scalar.register)
    if code.opcode[0] == "popc":
        count = build.intrinsic("ctpop", a)
    else:
        count = build.intrinsic("ctlz", a, flag=False)
    build.result(build.resize(count, 32))


def reverse_bits(code: Modifiers, build: Builder) -> None:
    """`brev`."""
    scalar = code.scalar("b32", "b64")
    code.finish()
    build.result(build.intrinsic("bitreverse", build.operand(scalar.register)))


def move(code: Modifiers, build: Builder) -> None:
    """`mov`; with a last part `pack<n>` or `unpack<n>` for the vector forms.

    `pack` takes the parts lowest first and gives one register, `unpack` the opposite.
    """
    parts = code.choice("pack2", "pack4", "unpack2", "unpack4", default="")
    scalar = code.scalar(*_MOVE_TYPES)
    code.finish()
    if not parts:
        build.result(build.operand(scalar.register))
        return
    count = int(parts[-1])
    bits = scalar.bits // count
    if scalar.kind != "b" or bits < 16:
        raise code.unsupported("parts of a vector have 16 or 32 bits")
    if parts.startswith("pack"):
        _pack(build, scalar.bits, [build.operand(f"b{bits}") for _ in range(count)])
        return
    whole = build.operand(scalar.register)
    for index in range(count):
        build.result(build.resize(build.binary("lshr", whole, index * bits), bits))


def _pack(build: Builder, bits: int, parts: list[Value]) -> None:
    whole = build.resize(parts[0], bits)
    for index, part in enumerate(parts[1:], start=1):
        shifted = build.binary("shl", build.resize(part, bits), index * part.bits)
        whole = build.binary("or", whole, shifted)
    build.result(whole)


DEFINERS: Mapping[str, Definer] = {
    "and": logic,
    "or": logic,
    "xor": logic,
    "not": complement,
    "cnot": logical_not,
    "shl": shift,
    "shr": shift,
    "shf": funnel_shift,
    "lop3": lookup_3,
    "prmt": permute_bytes,
    "bfe": extract_field,
    "bfi": insert_field,
    "bfind": find_leading,
    "popc": count_bits,
    "clz": count_bits,
    "brev": reverse_bits,
    "mov": move,
}
