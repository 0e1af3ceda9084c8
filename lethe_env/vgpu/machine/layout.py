"""Structures that Python and the native code share; field offsets are taken from here."""

from __future__ import annotations

import ctypes
from ctypes import c_uint8, c_uint32, c_uint64, c_void_p

BARRIERS = 16
"""Named barriers of a block, as PTX has them."""

VARIABLES_WINDOW = 1 << 16
"""Window number of the kernel's own `.global` and `.const` variables."""

LOCAL_WINDOW = VARIABLES_WINDOW + 1
"""Window number of generic addresses of local memory."""

SHARED_WINDOW = LOCAL_WINDOW + 1
"""Window number of generic addresses of a block's shared memory."""

PARAMETER_WINDOW = SHARED_WINDOW + 1
"""Window number of generic addresses of the kernel's parameters."""

WINDOW_BITS = 40

RANK_BITS = 24
"""Where in an address of shared memory the rank of the block within its cluster begins."""

MOST_RANKS = 16
"""Blocks of the largest cluster."""

MESSAGES = 1024
"""Messages a thread keeps; later ones are dropped."""

MESSAGE_BYTES = 256
"""Bytes of a message's arguments that are kept."""

PRINT, ASSERT = range(2)
"""Values of `Message.kind`."""

CHECK_RACES = 1
CHECK_DEFINED = 2
CHECK_BARRIERS = 4
COUNT_MEMORY = 8
ALONE = 16
EARLY = 32
"""Bits of `Context.options`; `ALONE`: no other thread runs blocks of the launch; `EARLY`: units do
what they are handed over at once, not as late as they may.
"""

FINDING_KINDS = ("out_of_bounds", "uninitialised_read", "race", "barrier", "asynchronous")
"""Names of `Record.kind`, by number."""

STOPS = (
    "", "deadlock", "trap", "assert", "unknown_map", "masked", "elsewhere", "alone", "ahead"
)  # fmt: skip
"""Why a launch ended early: names of `Context.stop`, by number."""


class Row(ctypes.Structure):
    """One window of the address space: `lethe_env.vgpu.memory.COLUMNS`."""

    _fields_ = (
        ("base", c_uint64),
        ("size", c_uint64),
        ("host", c_uint64),
        ("defined", c_uint64),
    )


class Site(ctypes.Structure):
    """What one memory instruction remembers: the window it hit last, and what it reported.

    The last pattern of banks in shared memory, too: which lanes were active, which unit of memory
    each accessed, counted from the first lane's, and how many conflicts that makes. And where the
    first lane was last, and how far that was from the time before; and a part of the window whose
    sectors are known to be spread.
    """

    _fields_ = (
        ("base", c_uint64),
        ("size", c_uint64),
        ("host", c_uint64),
        ("defined", c_uint64),
        ("shadow", c_uint64),
        ("sectors", c_uint64),
        ("reported", c_uint32),
        ("known_lanes", c_uint32),
        ("known_units", c_uint32 * 32),
        ("known_conflicts", c_uint64),
        ("last", c_uint64),
        ("stride", c_uint64),
        ("spread_from", c_uint64),
        ("spread_bytes", c_uint64),
    )


class Record(ctypes.Structure):
    """A finding as the native code leaves it."""

    _fields_ = (
        ("kind", c_uint32),
        ("site", c_uint32),
        ("lanes", c_uint32),
        ("block", c_uint32),
        ("address", c_uint64),
        ("other", c_uint64),
    )


class Fiber(ctypes.Structure):
    """A warp that can wait: its stack pointer and what it waits for."""

    _fields_ = (
        ("stack", c_void_p),
        ("warp", c_uint32),
        ("done", c_uint32),
        ("waiting", c_uint32),
        ("generation", c_uint32),
        ("context", c_void_p),
        ("copies", c_void_p),
        ("copies_first", c_uint32),
        ("copies_count", c_uint32),
        ("group", c_uint32),
        ("polling", c_uint32),
        ("polled", c_uint32),
        ("passed", c_uint32),
        ("phase", c_void_p),
        ("parity", c_uint64),
        ("held_at", c_uint32),
        ("bulk_group", c_uint32),
        ("product_group", c_uint32),
        ("fenced", c_uint32),
        ("cluster_lanes", c_uint32),
        ("cluster_phase", c_uint32),
    )


class Cluster(ctypes.Structure):
    """Blocks that run together and see each other's shared memory.

    Its barrier is a word like that of an `mbarrier`, of which only the parity counts.
    """

    _fields_ = (
        ("phase", c_uint64),
        ("arrived", c_uint32),
        ("warps", c_uint32),
        ("first", c_uint32),
        ("spare", c_uint32),
        ("sizes", c_uint32 * 3),
        ("explicit", c_uint32),
    )


class Barrier(ctypes.Structure):
    """A named barrier: threads that have arrived, how often it was passed, and votes cast at it."""

    _fields_ = (
        ("arrived", c_uint32),
        ("generation", c_uint32),
        ("votes", c_uint32 * 2),
        ("voters", c_uint32 * 2),
    )


class Copy(ctypes.Structure):
    """An asynchronous copy that no wait has completed yet, for all lanes of a warp."""

    _fields_ = (
        ("source", c_uint64 * 32),
        ("target", c_uint32 * 32),
        ("given", c_uint32 * 32),
        ("lanes", c_uint32),
        ("fetched", c_uint32),
        ("poisoned", c_uint32),
        ("size", c_uint32),
        ("group", c_uint32),
        ("site", c_uint32),
    )


class Counters(ctypes.Structure):
    """Events of a launch that depend on data."""

    _fields_ = (
        ("loaded_bytes", c_uint64),
        ("stored_bytes", c_uint64),
        ("sectors", c_uint64),
        ("shared_bytes", c_uint64),
        ("bank_conflicts", c_uint64),
        ("atomics", c_uint64),
    )


class Message(ctypes.Structure):
    """A call of `vprintf` or `__assertfail` by one lane."""

    _fields_ = (
        ("kind", c_uint32),
        ("block", c_uint32),
        ("thread", c_uint32),
        ("padding", c_uint32),
        ("words", c_uint64 * 4),
        ("data", c_uint8 * MESSAGE_BYTES),
    )


class Context(ctypes.Structure):
    """Everything a thread that runs blocks needs."""

    _fields_ = (
        ("parameters", c_void_p),
        ("grid_x", c_uint32),
        ("grid_y", c_uint32),
        ("grid_z", c_uint32),
        ("block_x", c_uint32),
        ("block_y", c_uint32),
        ("block_z", c_uint32),
        ("block", c_uint32),
        ("warps", c_uint32),
        ("options", c_uint32),
        ("stop", c_uint32),
        ("epoch", c_uint32),
        ("granule_bits", c_uint32),
        ("acquired", c_uint32),
        ("shared_granule_bits", c_uint32),
        ("mark_base", c_uint32),
        ("blocks", c_uint32),
        ("table", c_void_p),
        ("table_size", c_uint64),
        ("shadows", c_void_p),
        ("sectors", c_void_p),
        ("released", c_void_p),
        ("variables", Row),
        ("shared_window", Site),
        ("sites", c_void_p),
        ("records", c_void_p),
        ("record_count", c_uint64),
        ("fibers", c_void_p),
        ("current", c_void_p),
        ("scheduler_stack", c_void_p),
        ("stack_tops", c_void_p),
        ("barriers", c_void_p),
        ("executions", c_void_p),
        ("counters", c_void_p),
        ("messages", c_void_p),
        ("message_count", c_uint64),
        ("order", c_void_p),
        ("order_count", c_uint64),
        ("next_block", c_void_p),
        ("changes", c_uint64),
        ("units", c_void_p),
        ("active", c_uint32),
        ("fenced", c_uint32),
        ("rank", c_uint32),
        ("cluster_size", c_uint32),
        ("cluster", c_void_p),
        ("peers", c_void_p),
        ("ordered_epoch", c_uint32),
        ("live", c_uint32),
        ("foreign_from", c_uint64),
        ("foreign_to", c_uint64),
        ("foreign_site", c_uint32),
        ("foreign_rank", c_uint32),
    )
