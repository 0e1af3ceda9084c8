"""`ldmatrix`: eight-by-eight matrices of 16-bit elements from shared memory."""

from __future__ import annotations

from ..ptx.model import Address, Instruction, Vector
from .access import loader
from .emit import Writer
from .host_access import result_types
from .lowering import Lowering, take_operands
from .memory_ops import access_arguments
from .values import LANES, Value, constant, struct_type, vector

_MATRICES = {"x1": 1, "x2": 2, "x4": 4}
_ROWS = 8
_WORDS_PER_ROW = 4


def lower_load_matrix(lowering: Lowering, instruction: Instruction) -> None:
    """Write `ldmatrix`: lane `8 j + r` gives the address of row r of matrix j."""
    modifiers = list(instruction.opcode[1:])
    transposed = "trans" in modifiers
    shape = [m for m in modifiers if m in _MATRICES]
    left = [m for m in modifiers if m not in _MATRICES and m != "trans"]
    target, source = take_operands(instruction, 2)
    plain = left in (["sync", "aligned", "m8n8", "shared", "b16"],
                     ["sync", "aligned", "m8n8", "shared::cta", "b16"])  # fmt: skip
    if not plain or len(shape) != 1 or not isinstance(source, Address):
        raise lowering.unsupported(instruction)
    count = _MATRICES[shape[0]]
    items = target.items if isinstance(target, Vector) else (target,)
    if len(items) != count:
        raise lowering.unsupported(instruction, f"{len(items)} registers")
    registers, writer = lowering.registers, lowering.writer
    rows = constant("i32", (1 << (_ROWS * count)) - 1)
    mask = writer.both(registers.active(instruction), writer.mask(rows))
    arguments = access_arguments(lowering, instruction, "shared", source, mask)
    types = result_types(32, _WORDS_PER_ROW)
    zeros = [constant(type_, 0) for type_ in types]
    name = loader(lowering.module, 32, _WORDS_PER_ROW)
    result = writer.call(struct_type(types), name, *arguments, *zeros)
    words = _rows_in_order(writer, writer.unpack(result, types))
    guard = registers.guard(instruction)
    for matrix, item in enumerate(items):
        value = _fragment(writer, words, matrix, transposed)
        registers.write(item, value, guard)


def _rows_in_order(writer: Writer, words: list[Value]) -> Value:
    """All rows one after another: word w of row r is element `4 r + w` of 128."""
    low = writer.shuffle(words[0], range(2 * LANES), words[1])
    high = writer.shuffle(words[2], range(2 * LANES), words[3])
    order = [w * LANES + r for r in range(LANES) for w in range(_WORDS_PER_ROW)]
    return writer.shuffle(low, order, high)


def _fragment(writer: Writer, words: Value, matrix: int, transposed: bool) -> Value:
    """What each lane gets of one matrix: two neighbours of a row, or of a column."""
    start = matrix * LANES
    own = writer.shuffle(words, range(start, start + LANES))
    if not transposed:
        return own
    halves = writer.cast("bitcast", own, vector("i16", 2 * LANES))
    order = [(k % _ROWS) * _ROWS + k // _ROWS for k in range(2 * LANES)]
    return writer.cast("bitcast", writer.shuffle(halves, order), vector("i32"))
