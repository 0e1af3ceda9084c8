"""The word of an `mbarrier`, as far as the scheduler looks at it."""

from __future__ import annotations

from .emit import Writer
from .layout import Fiber
from .values import Value

COUNT_BITS = 20
MADE_BIT = 2 * COUNT_BITS
PARITY_BIT = MADE_BIT + 1
REMOTE_BIT = PARITY_BIT + 1
"""Whether another block of the cluster has arrived in this phase."""
BYTES_BIT = REMOTE_BIT + 1


def is_pending(writer: Writer, word: Value, parity: Value) -> Value:
    """Whether the phase with a parity, `i64`, has not completed, `i1`."""
    current = writer.both(writer.shift_right(word, PARITY_BIT), 1)
    return writer.compare("eq", current, parity)


def is_held(writer: Writer, fiber: Value) -> Value:
    """Whether a warp waits for a phase that has not completed, `i1`."""
    place = writer.read(fiber, Fiber, "phase")
    waits = writer.compare("ne", writer.cast("ptrtoint", place, "i64"), 0)
    result = writer.variable(waits)
    with writer.when(waits):
        word = writer.load("i64", place, 1)
        parity = writer.read(fiber, Fiber, "parity")
        writer.store(is_pending(writer, word, parity), result)
    return writer.load("i1", result)
