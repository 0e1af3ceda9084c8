"""The units of a multiprocessor that work on their own: what they have and what they have to do.

A product, a copy or an arrival that a warp hands over lies in the block's queue. It happens only
when all warps wait, and one of them for it: as late as any correct program may rely on.
"""

from __future__ import annotations

import ctypes
from ctypes import c_uint8, c_uint32, c_uint64, c_void_p
from enum import IntEnum

from ..ptx.model import Kernel
from .emit import Writer
from .layout import Context
from .values import Value

PAIRED_PRODUCT = 32
"""Flag of a product of two blocks."""

QUEUE = 1024
"""Operations that can be under way; the oldest completes early beyond that, as on a GPU."""

TENSOR_LANES, TENSOR_COLUMNS = 128, 512
"""Of tensor memory, in 32-bit cells; a column lies together."""

RANKS = 5
"""Most dimensions of a tensor that is copied as tiles."""

ROW_BLOCK = 16
"""Lanes of tensor memory that are defined together."""

_OPCODES = frozenset(("wgmma", "tcgen05", "mbarrier", "tensormap", "clusterlaunchcontrol"))


class Kind(IntEnum):
    """What an operation does."""

    PRODUCT = 0
    ARRIVE = 1
    LOAD = 2
    STORE = 3
    REDUCE = 4
    FACTORS = 5
    CANCEL = 6
    PUT = 7


class Misuse(IntEnum):
    """What a kernel must not do with a unit."""

    NOT_ALLOCATED = 0
    OTHER_LANES = 1
    NO_ROOM = 2
    KEPT = 3
    NOT_AS_ALLOCATED = 4
    GIVEN_UP = 5
    UNDER_WAY = 6
    NOT_AWAITED = 7
    EARLY_REGISTERS = 8
    NO_REGISTER_FENCE = 9
    NOT_STORED = 10
    NO_FENCE = 11
    NOT_ALIKE = 12
    NO_PARTNER = 13


MISUSES = {
    Misuse.NOT_ALLOCATED: "columns of tensor memory are used that are not allocated",
    Misuse.OTHER_LANES: "lanes of tensor memory are used that belong to another warp",
    Misuse.NO_ROOM: "so many columns of tensor memory are not free, or cannot be allocated",
    Misuse.KEPT: "the block ends before these columns of tensor memory are released",
    Misuse.NOT_AS_ALLOCATED: "columns of tensor memory are released that were not allocated so",
    Misuse.GIVEN_UP: "the block has given up its right to allocate tensor memory",
    Misuse.UNDER_WAY: "a product that works on these columns has not been waited for",
    Misuse.NOT_AWAITED: "the block ends before anyone has waited for this",
    Misuse.EARLY_REGISTERS: "a register is used before what fills it has been waited for",
    Misuse.NO_REGISTER_FENCE: "registers of the product have changed since the last wgmma.fence",
    Misuse.NOT_STORED: "a store to these columns of tensor memory has not been waited for",
    Misuse.NO_FENCE: "shared memory that threads wrote is read without fence.proxy.async",
    Misuse.NOT_ALIKE: "the two blocks of a pair do not allocate as many columns of tensor memory",
    Misuse.NO_PARTNER: "the other block of the pair does not allocate tensor memory, too",
}
"""In words."""


class Operation(ctypes.Structure):
    """Something that a warp has handed over; what a field means depends on the kind.

    `target` and `barrier` are offsets in a block's memory, `blocks` and `homes` the sets of blocks
    of the cluster whose memory that is, by their ranks.
    """

    _fields_ = (
        ("fiber", c_void_p),
        ("left", c_uint64),
        ("right", c_uint64),
        ("kind", c_uint32),
        ("site", c_uint32),
        ("target", c_uint32),
        ("sources", c_uint32),
        ("flags", c_uint32),
        ("rows", c_uint32),
        ("columns", c_uint32),
        ("barrier", c_uint32),
        ("coordinates", c_uint32 * RANKS),
        ("rank", c_uint32),
        ("group", c_uint32),
        ("blocks", c_uint32),
        ("homes", c_uint32),
        ("spare", c_uint32),
    )


class Units(ctypes.Structure):
    """Of one block.

    Two blocks that allocate tensor memory together get the same columns: the first to do so takes
    them for both, and promises them to the other one.
    """

    _fields_ = (
        ("first", c_uint32),
        ("count", c_uint32),
        ("given_up", c_uint32),
        ("promised", c_uint32),
        ("promised_first", c_uint32),
        ("promised_site", c_uint32),
        ("allocation_sites", c_uint32 * TENSOR_COLUMNS),
        ("owners", c_uint8 * TENSOR_COLUMNS),
        ("defined", c_uint8 * (TENSOR_COLUMNS * TENSOR_LANES // ROW_BLOCK)),
        ("queue", c_uint64 * (QUEUE * ctypes.sizeof(Operation) // 8)),
        ("cells", c_uint32 * (TENSOR_COLUMNS * TENSOR_LANES)),
    )


def uses_units(kernel: Kernel) -> bool:
    """Whether a kernel hands work to such a unit or waits for one."""
    return any(
        i.opcode[0] in _OPCODES
        or i.opcode[:3] == ("cp", "async", "bulk")
        or i.opcode[:2] in (("st", "async"), ("red", "async"))
        for i in kernel.body
    )


def units_of(writer: Writer, context: Value) -> Value:
    """Pointer to the `Units` of a context."""
    return writer.read(context, Context, "units")


def operation_at(writer: Writer, units: Value, position: Value) -> Value:
    """The operation at a position of the queue, which goes round."""
    index = writer.both(writer.resize(position, "i64"), QUEUE - 1)
    size = f"[{ctypes.sizeof(Operation)} x i8]"
    return writer.item(writer.field(units, Units, "queue"), size, index)
