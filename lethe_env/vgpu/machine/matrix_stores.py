"""`stmatrix`: eight-by-eight matrices of 16-bit elements to shared memory."""

from __future__ import annotations

from ..ptx.model import Address, Instruction, Vector
from .access import storer
from .emit import Writer
from .lowering import Lowering, take_operands
from .memory_ops import access_arguments
from .values import LANES, Value, constant, vector

_MATRICES = {"x1": 1, "x2": 2, "x4": 4}
_ROWS = 8
_WORDS_PER_ROW = 4


def lower_store_matrix(lowering: Lowering, instruction: Instruction) -> None:
    """Write `stmatrix`: lane `8 j + r` gives the address of row r of matrix j."""
    modifiers = list(instruction.opcode[1:])
    shape = [m for m in modifiers if m in _MATRICES]
    left = [m.removesuffix("::cta") for m in modifiers if m not in _MATRICES and m != "trans"]
    target, source = take_operands(instruction, 2)
    plain = left == ["sync", "aligned", "m8n8", "shared", "b16"]
    if not plain or len(shape) != 1 or not isinstance(target, Address):
        raise lowering.unsupported(instruction)
    count = _MATRICES[shape[0]]
    items = source.items if isinstance(source, Vector) else (source,)
    if len(items) != count:
        raise lowering.unsupported(instruction, f"{len(items)} registers")
    registers, writer = lowering.registers, lowering.writer
    fragments = [registers.read(item, "i32", lanes=True) for item in items]
    if "trans" in modifiers:
        fragments = [_transposed(writer, fragment) for fragment in fragments]
    rows = constant("i32", (1 << (_ROWS * count)) - 1)
    mask = writer.both(registers.active(instruction), writer.mask(rows))
    arguments = access_arguments(lowering, instruction, "shared", target, mask)
    name = storer(lowering.module, 32, _WORDS_PER_ROW)
    writer.call("void", name, *arguments, *_words(writer, fragments))


def _transposed(writer: Writer, fragment: Value) -> Value:
    """The same matrix with rows and columns exchanged; a fragment holds two neighbours of a row."""
    halves = writer.cast("bitcast", fragment, vector("i16", 2 * LANES))
    order = [(k % _ROWS) * _ROWS + k // _ROWS for k in range(2 * LANES)]
    return writer.cast("bitcast", writer.shuffle(halves, order), vector("i32"))


def _words(writer: Writer, fragments: list[Value]) -> list[Value]:
    """For each word of a row, that of every row: row r of matrix j is lane `8 j + r`."""
    padded = fragments + [fragments[-1]] * (4 - len(fragments))
    low = writer.shuffle(padded[0], range(2 * LANES), padded[1])
    high = writer.shuffle(padded[2], range(2 * LANES), padded[3])
    return [
        writer.shuffle(low, [row * _WORDS_PER_ROW + word for row in range(LANES)], high)
        for word in range(_WORDS_PER_ROW)
    ]
