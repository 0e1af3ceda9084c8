"""Rows of packed tokens [tokens, H, D], as TMA copies those of one head in one chunk.

What follows a chunk of fewer than 64 tokens may be another sequence, and TMA stops nowhere but at
the end of a dimension. So packed tokens are described to it as the 64 rows before a stop:

    (row, channel, head, stop)  ↦  token stop − 64 + row

Rows and stops have one stride, and the base lies 64 tokens before the tensor. A chunk of n tokens
is copied from row 64 − n on, wherever it begins. After its last token come rows from 64 on, which
TMA fills with zeros, and so it does with channels from D on: a tile is whole, and zeros add nothing
to any sum. No row before row 64 − n is ever asked for.

Nothing postpones annotations here: the DSL wants them evaluated.
"""

from typing import NamedTuple

import cutlass
from cutlass import cute

TOKENS = 64
"""Most tokens of a chunk."""


class Place(NamedTuple):
    """Where a chunk of a head lies."""

    index: cutlass.Int32
    """Of its matrices and states: chunk · H + head."""
    head: cutlass.Int32
    start: cutlass.Int32
    """Its first token."""
    count: cutlass.Int32
    """Its tokens; none where there is no such chunk."""

    @property
    def stop(self) -> cutlass.Int32:
        """The token after its last."""
        return self.start + self.count


@cute.jit
def place_of(
    chunk: cutlass.Int32,
    head: cutlass.Int32,
    heads: cutlass.Int32,
    starts: cute.Tensor,
    stops: cute.Tensor,
) -> Place:
    """The place of a chunk that may lie behind the last one."""
    chunks = stops.shape[0]
    known = cutlass.min(chunk, chunks - 1)
    start, stop = cutlass.Int32(starts[known]), cutlass.Int32(stops[known])
    count = cutlass.select_(chunk < chunks, stop - start, cutlass.Int32(0))
    return Place(chunk * heads + head, head, start, count)


@cute.jit
def rows_before(tokens: cute.Tensor):
    """Packed tokens as (row, channel, head, stop)."""
    length, heads, width = tokens.shape
    stride = heads * width
    layout = cute.make_layout((TOKENS, width, heads, length + 1), stride=(stride, 1, width, stride))
    return cute.make_tensor(tokens.iterator - TOKENS * stride, layout)


def matrices(tensor):
    """[L, rows, channels] as (row, channel, L)."""
    return _permuted(tensor, [1, 2, 0])


def turned(tensor):
    """The first two dimensions of a source exchanged."""
    return _permuted(tensor, [1, 0, *range(2, len(tensor.shape))])


def found_at(place, source, across):
    """What TMA copies a chunk from: a source that begins with it, and further coordinates.

    Args:
        place: Of the chunk.
        source: Of `rows_before` or `matrices`, in TMA's coordinates.
        across: Whether it was `turned`.
    """
    if len(source.shape) == 3:
        return source, (place.index,)
    first = TOKENS - place.count
    offset = (0, first, 0, 0) if across else (first, 0, 0, 0)
    return cute.domain_offset(offset, source), (place.head, place.stop)


def _permuted(tensor, order):
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=order))
