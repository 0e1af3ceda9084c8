"""Tokens of ragged sequences, packed, and by chunk as the stages of `stages.py` have them."""

from __future__ import annotations

import torch

from lethe_env.kernels.gated_delta.chunks import ragged_chunks

HEADS, CHUNK = 3, 64
BORDERS = (0, 150, 150, 180, 244)
"""Sequences of three chunks, the last not full, of none, of one that is not full and of one that
is: with three heads, fifteen chunks, so that one has no neighbour in its block."""
LENGTH = BORDERS[-1]


def chunks():
    return ragged_chunks(torch.tensor(BORDERS), CHUNK)


def drawing(seed=0):
    """What draws packed tokens [tokens, H, width], normal, in float64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(width):
        return torch.randn(LENGTH, HEADS, width, generator=generator, dtype=torch.float64)

    return draw, generator


def by_chunk(rows):
    """[tokens, H, D] → [chunks, H, C, D], zeros where there is no token."""
    places = chunks()
    result = rows.new_zeros(places.count, CHUNK, *rows.shape[1:])
    for n, (start, stop) in enumerate(zip(places.starts, places.stops, strict=True)):
        result[n, : stop - start] = rows[start:stop]
    return result.transpose(1, 2)


def by_token(chunked):
    """The reverse."""
    pairs = zip(chunks().starts, chunks().stops, chunked.transpose(1, 2), strict=True)
    return torch.cat([rows[: stop - start] for start, stop, rows in pairs]).contiguous()


def sequences():
    """Of each sequence its number and its chunks', from the last on."""
    first = chunks().first_chunks.tolist()
    return [(s, range(first[s + 1] - 1, first[s] - 1, -1)) for s in range(len(first) - 1)]
