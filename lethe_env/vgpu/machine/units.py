"""The units of a multiprocessor that work on their own: what they have and what they have to do.

A product, a copy or an arrival that a warp hands over lies in the block's queue. It happens in
order, and only when all warps wait: that is as late as any correct program may rely on.
"""

from __future__ import annotations

import ctypes
from ctypes import c_uint8, c_uint32, c_uint64, c_void_p
from enum import IntEnum

from ..ptx.model import Kernel
from .emit import Writer
from .layout import Context
from .values import Value

QUEUE = 1024
"""Operations that can be under way; the oldest completes early beyond that, as on a GPU."""

TENSOR_LANES, TENSOR_COLUMNS = 128, 512
"""Of tensor memory, in 32-bit cells; a column lies together."""

RANKS = 5
"""Most dimensions of a tensor that is copied as tiles."""

ROW_BLOCK = 16
"""Lanes of tensor memory that are defined together."""

_OPCODES = frozenset(("wgmma", "tcgen05", "mbarrier", "tensormap"))


class Kind(IntEnum):
    """What an operation does."""

    PRODUCT = 0
    ARRIVE = 1
    LOAD = 2
    STORE = 3
    REDUCE = 4


class Operation(ctypes.Structure):
    """Something that a warp has handed over; what a field means depends on the kind."""

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
        ("spare", c_uint32),
    )


class Units(ctypes.Structure):
    """Of one block."""

    _fields_ = (
        ("first", c_uint32),
        ("count", c_uint32),
        ("allocated", c_uint32),
        ("relinquished", c_uint32),
        ("owners", c_uint8 * TENSOR_COLUMNS),
        ("defined", c_uint8 * (TENSOR_COLUMNS * TENSOR_LANES // ROW_BLOCK)),
        ("queue", c_uint64 * (QUEUE * ctypes.sizeof(Operation) // 8)),
        ("cells", c_uint32 * (TENSOR_COLUMNS * TENSOR_LANES)),
    )


def uses_units(kernel: Kernel) -> bool:
    """Whether a kernel hands work to such a unit or waits for one."""
    return any(
        i.opcode[0] in _OPCODES or i.opcode[:3] == ("cp", "async", "bulk") for i in kernel.body
    )


def units_of(writer: Writer, context: Value) -> Value:
    """Pointer to the `Units` of a context."""
    return writer.read(context, Context, "units")
