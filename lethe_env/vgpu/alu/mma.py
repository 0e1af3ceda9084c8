"""`mma.sync`: matrix products of a whole warp, in floating point as tensor cores sum them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from . import tensor_sums
from .accumulation import Accumulation
from .builder import Builder, Definition, Value
from .common_sums import CommonTile
from .fragments import LANES, from_column, from_row
from .opcode import Modifiers
from .tensor_sums import Operands

_SHAPES: Mapping[tuple[str, ...], int] = {
    ("m16n8k16", "f32", "f16", "f16", "f32"): 16,
    ("m16n8k16", "f16", "f16", "f16", "f16"): 16,
    ("m16n8k16", "f32", "bf16", "bf16", "f32"): 16,
    ("m16n8k8", "f32", "f16", "f16", "f32"): 8,
    ("m16n8k8", "f16", "f16", "f16", "f16"): 8,
    ("m16n8k8", "f32", "bf16", "bf16", "f32"): 8,
    ("m16n8k8", "f32", "tf32", "tf32", "f32"): 8,
    ("m16n8k4", "f32", "tf32", "tf32", "f32"): 4,
}
_DOUBLE = ("f64", "f64", "f64", "f64")
_DOUBLE_SHAPES = {"m8n8k4": (1, 4), "m16n8k4": (2, 4), "m16n8k8": (2, 8), "m16n8k16": (2, 16)}
"""Groups of eight rows, and the depth."""


@lru_cache(maxsize=64)
def define(opcode: tuple[str, ...], model: Accumulation) -> Definition:
    """The function of an `mma.sync`, over one `<32 x i32>` (i64 for f64) per fragment register.

    Operands are the registers of A, B and C in PTX's order, results those of D.

    Args:
        opcode: The opcode split at its dots.
        model: How sums of f16, bf16 and tf32 are formed.

    Raises:
        UnsupportedError: If the shape, a type or a modifier is not implemented.
    """
    code = Modifiers(opcode)
    build = Builder(LANES)
    if opcode[:3] != ("mma", "sync", "aligned"):
        raise code.unsupported("expected mma.sync.aligned")
    saturates = opcode[6:7] == ("satfinite",)
    shape = (opcode[3], *opcode[6 + saturates :])
    if opcode[4:6] != ("row", "col"):
        raise code.unsupported("expected .row.col")
    if saturates and not _is_integer(shape):
        raise code.unsupported(".satfinite goes with integers")
    name = f"alu.{'.'.join(opcode)}"
    if shape in _SHAPES:
        name = f"{name}.{model.name}"
        _floating(build, model, f"{name}.any", _SHAPES[shape], shape[2], shape[1])
    elif shape[1:] == _DOUBLE and shape[0] in _DOUBLE_SHAPES:
        _double(build, *_DOUBLE_SHAPES[shape[0]])
    elif _is_integer(shape):
        depth = int(shape[0].partition("k")[2])
        _integer(build, depth, (shape[2] == "s8", shape[3] == "s8"), saturates)
    else:
        raise code.unsupported("unknown shape or types")
    return build.finish(name, attributes="noinline")


def _floating(
    build: Builder, model: Accumulation, name: str, depth: int, source: str, target: str
) -> None:
    """Sums of products; a function of this name is called for factors that are not common."""
    operands = Operands.of(build, depth, source, target)
    anything = Builder(LANES)
    unknown = Operands.of(anything, depth, source, target)
    for register in tensor_sums.sums(anything, model, unknown, source, target):
        anything.result(register)
    definition = anything.finish(name, attributes="noinline cold")
    tile = CommonTile(build, model, source, target)

    def common() -> list[Value]:
        starts = tensor_sums.unpacked(build, operands.accumulators, target)
        results = tile.multiply(operands.rows, operands.columns, starts)
        return tensor_sums.packed(build, results, target)

    mask = tile.uncommon([*operands.rows, *operands.columns])
    results = build.chosen_if_any(mask, lambda: build.call(definition, *operands), common)
    for register in results:
        build.result(register)


def _is_integer(shape: tuple[str, ...]) -> bool:
    if len(shape) != 5 or shape[0] not in ("m16n8k32", "m16n8k16"):
        return False
    return shape[1] == shape[4] == "s32" and {shape[2], shape[3]} <= {"s8", "u8"}


def _double(build: Builder, halves: int, depth: int) -> None:
    """f64: chains of fused multiply-adds."""
    counts = halves * depth // 4, depth // 4, 2 * halves
    rows, columns, results = (
        [build.floats(build.operand("b64")) for _ in range(count)] for count in counts
    )
    for k in range(depth):
        chunk, step = divmod(k, 4)
        column = columns[chunk]
        right = [build.shuffle(column, column, from_column(step, odd)) for odd in range(2)]
        for half, row in enumerate(rows[halves * chunk : halves * (chunk + 1)]):
            left = build.shuffle(row, row, from_row(step))
            for odd in range(2):
                index = 2 * half + odd
                results[index] = build.intrinsic("fma", left, right[odd], results[index])
    for value in results:
        build.result(value)


def _integer(build: Builder, depth: int, signed: tuple[bool, bool], saturates: bool) -> None:
    """8-bit products added to 32-bit accumulators, wrapping or saturating once.

    The products alone never leave 32 bits.
    """
    chunks = depth // 16
    rows = [build.operand("b32") for _ in range(2 * chunks)]
    columns = [build.operand("b32") for _ in range(chunks)]
    starts = [build.operand("b32") for _ in range(4)]
    results = [build.constant(0, start) for start in starts]
    for chunk in range(chunks):
        for step in range(4):
            right = [
                _bytes(build, columns[chunk], from_column(step, odd), signed[1]) for odd in range(2)
            ]
            for half in range(2):
                left = _bytes(build, rows[2 * chunk + half], from_row(step), signed[0])
                for odd in range(2):
                    index = 2 * half + odd
                    for x, y in zip(left, right[odd], strict=True):
                        product = build.binary("mul", x, y)
                        results[index] = build.binary("add", results[index], product)
    for start, total in zip(starts, results, strict=True):
        if saturates:
            build.result(build.intrinsic("sadd.sat", start, total))
        else:
            build.result(build.binary("add", start, total))


def _bytes(build: Builder, register: Value, mask: Sequence[int], signed: bool) -> list[Value]:
    shuffled = build.shuffle(register, register, mask)
    shift = "ashr" if signed else "lshr"
    return [
        build.binary(shift, build.binary("shl", shuffled, 24 - 8 * index), 24) for index in range(4)
    ]
