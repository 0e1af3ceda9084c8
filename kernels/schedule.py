"""How a scan over time is cut into programs: by rows always, by time where rows are too few."""

from __future__ import annotations

from dataclasses import dataclass

import triton

CHUNK = 64
"""Tokens between two kept states. The backward holds one chunk of states at a time, the forward
keeps one state a chunk, so memory is smallest near the square root of the length."""
FILLING_PROGRAMS = 296
"""Two programs for each of the 148 multiprocessors of the largest target, a B200. The same on every
GPU, so that results do not depend on which one computed them."""
NARROW_STATE = 16
"""States up to this size share one kernel."""
NARROW_TILE, WIDE_TILE = 512, 1024
"""Elements of the state that a program holds: eight a thread at two and at four warps.
Backward kernels hold five such tiles at a time, within the 255 registers of a thread."""

REGISTERS, THREAD_REGISTERS = 65536, 255
"""Of a multiprocessor, and the most of one thread (CUDA C++ Programming Guide, technical
specifications, alike from compute capability 8.0 to 10.0)."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The launch configuration of one scan."""

    rows: int
    """Rows of the state (channels) of one program, a power of two."""
    columns: int
    """Columns of the state of one program: its whole width, padded to a power of two."""
    segment: int
    """Tokens that one program walks, a multiple of `chunk`. With fewer than the length, three
    passes replace one: each segment's own state, the states at segment borders, the outputs."""
    chunk: int = CHUNK
    """Tokens between two kept states."""
    warps: int = 2

    def __post_init__(self) -> None:
        if self.segment % self.chunk:
            raise ValueError(f"a segment of {self.segment} tokens is no multiple of {self.chunk}")

    @property
    def options(self) -> dict[str, int]:
        """What Triton is told at a launch.

        All registers are offered aloud, because the assembler otherwise aims at more blocks at a
        time and spills a few bytes in the loop over time.
        """
        offered = min(THREAD_REGISTERS, REGISTERS // (32 * self.warps))
        return {"num_warps": self.warps, "maxnreg": offered}

    def segments(self, length: int) -> int:
        """Into how many pieces the time is cut."""
        return triton.cdiv(length, self.segment)


def choose(*, sequences: int, length: int, rows: int, columns: int) -> Schedule:
    """The default schedule.

    One program walks the whole length as long as sequences and rows alone make `FILLING_PROGRAMS`
    programs. Otherwise the time is cut into as many segments as that takes, at most one a chunk;
    the first pass over the segments then nearly doubles the work, so a cut into two is not made.

    Args:
        sequences: Independent scans: batch, or batch times heads.
        length: Tokens.
        rows: Rows of each state.
        columns: Columns of each state.

    Raises:
        ValueError: `columns` does not fit one program.
    """
    width = max(NARROW_STATE, triton.next_power_of_2(columns))
    if width > WIDE_TILE:
        raise ValueError(f"a state of {columns} columns: at most {WIDE_TILE} fit one program")
    narrow = width == NARROW_STATE
    height = (NARROW_TILE if narrow else WIDE_TILE) // width
    chunks = max(1, triton.cdiv(length, CHUNK))
    programs = max(1, sequences * triton.cdiv(rows, height))
    pieces = min(chunks, triton.cdiv(FILLING_PROGRAMS, programs))
    if pieces <= 2:
        pieces = 1
    segment = triton.cdiv(chunks, pieces) * CHUNK
    return Schedule(height, width, segment, warps=2 if narrow else 4)
