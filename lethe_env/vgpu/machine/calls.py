"""Calls that a kernel can make: `vprintf` and `__assertfail`."""

from __future__ import annotations

import ctypes

from ..ptx.model import Instruction, Symbol, Vector
from .emit import Module, Writer
from .layout import ASSERT, MESSAGE_BYTES, MESSAGES, PRINT, STOPS, Context, Fiber, Message
from .lowering import Lowering
from .values import LANES, Value, constant, constants, vector

_FUNCTIONS = {"vprintf": (PRINT, 2), "__assertfail": (ASSERT, 5)}
"""What a function leaves as a message, and how many parameters it has."""


def lower_call(lowering: Lowering, instruction: Instruction) -> None:
    """Write a call; every active lane leaves a message, and a failed assertion ends the launch."""
    operands = [operand for operand in instruction.operands if not isinstance(operand, Vector)]
    lists = [operand for operand in instruction.operands if isinstance(operand, Vector)]
    name = operands[0].name if operands and isinstance(operands[0], Symbol) else ""
    if name not in _FUNCTIONS or not lists:
        raise lowering.unsupported(instruction, f"the function {name}")
    kind, count = _FUNCTIONS[name]
    names = [item.name for item in lists[-1].items if isinstance(item, Symbol)]
    offsets = [lowering.registers.symbols[item] for item in names]
    if len(offsets) != count:
        raise lowering.unsupported(instruction, f"{len(offsets)} parameters")
    writer = lowering.writer
    start = writer.splat(writer.cast("ptrtoint", lowering.depot, "i64"))
    lanes = constants("i64", [lane * lowering.depot_bytes for lane in range(LANES)])
    depots = writer.add(start, lanes)
    mask = lowering.registers.active(instruction)
    function = _messenger(lowering.module, kind, offsets, lowering.depot_bytes)
    writer.call("void", function, lowering.context, lowering.fiber, mask, depots)


def _messenger(module: Module, kind: int, offsets: list[int], depot_bytes: int) -> str:
    """`leave(context, fiber, mask, depots)`: copy each active lane's parameters to a message."""
    sizes = [8, 8] if kind == PRINT else [8, 8, 4, 8]

    def build(writer: Writer, context: Value, fiber: Value, mask: Value, depots: Value) -> None:
        places = writer.variable(depots)
        first_thread = writer.mul(writer.read(fiber, Fiber, "warp"), LANES)
        with writer.lanes(writer.bits(mask)) as lane:
            count = writer.read(context, Context, "message_count")
            with writer.when(writer.compare("ult", count, MESSAGES)):
                writer.write(context, Context, "message_count", writer.add(count, 1))
                size = f"[{ctypes.sizeof(Message)} x i8]"
                message = writer.item(writer.read(context, Context, "messages"), size, count)
                address = writer.load("i64", writer.item(places, "i64", lane))
                depot = writer.cast("inttoptr", address, "ptr")
                writer.write(message, Message, "kind", kind)
                writer.write(message, Message, "block", writer.read(context, Context, "block"))
                thread = writer.add(first_thread, writer.resize(lane, "i32"))
                writer.write(message, Message, "thread", thread)
                _copy_words(writer, message, depot, offsets, sizes)
                if kind == PRINT:
                    _copy_arguments(writer, message, depot, offsets[1], depot_bytes)
            if kind == ASSERT:
                writer.write(context, Context, "stop", STOPS.index("assert"))
        writer.give()

    name = f"call.leave.{kind}.{'.'.join(map(str, offsets))}"
    parameters = [("ptr", "context"), ("ptr", "fiber"), (vector("i1"), "mask")]
    return module.function(name, "void", [*parameters, (vector("i64"), "depots")], build)


def _copy_words(
    writer: Writer, message: Value, depot: Value, offsets: list[int], sizes: list[int]
) -> None:
    words = writer.field(message, Message, "words")
    for position, (offset, size) in enumerate(zip(offsets, sizes, strict=False)):
        word = writer.load(f"i{8 * size}", writer.at(depot, offset), 1)
        writer.store(writer.resize(word, "i64"), writer.item(words, "i64", position))


def _copy_arguments(
    writer: Writer, message: Value, depot: Value, offset: int, depot_bytes: int
) -> None:
    """The bytes that `vprintf`'s second parameter points to, an address of local memory."""
    pointer = writer.load("i64", writer.at(depot, offset), 1)
    start = writer.both(pointer, (1 << 40) - 1)
    room = constant("i64", depot_bytes)
    inside = writer.compare("ult", start, room)
    left = writer.select(inside, writer.sub(room, start), constant("i64", 0))
    fits = writer.compare("ult", left, MESSAGE_BYTES)
    size = writer.select(fits, left, constant("i64", MESSAGE_BYTES))
    data = writer.field(message, Message, "data")
    source = writer.at(depot, start)
    writer.call("void", "llvm.memcpy.p0.p0.i64", data, source, size, constant("i1", 0))
