"""Where chunks lie in a packed token tensor."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of all sequences, in order. No chunk crosses the border of a sequence."""

    starts: Tensor
    """First token of each chunk, int64 [chunks]."""
    stops: Tensor
    """Token after the last of each chunk, int64 [chunks]."""
    first_chunks: Tensor
    """First chunk of each sequence, and the number of chunks, int32 [sequences + 1]."""

    @property
    def count(self) -> int:
        """Number of chunks."""
        return self.starts.numel()

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return self.first_chunks.numel() - 1


def equal_chunks(batch: int, length: int, chunk: int, device: torch.device) -> Chunks:
    """Chunks of `batch` sequences of `length` tokens each, built without a word from the device."""
    each = -(-length // chunk)
    index = torch.arange(batch * each, device=device)
    begin = index // each * length
    starts = begin + index % each * chunk
    first_chunks = torch.arange(batch + 1, device=device, dtype=torch.int32) * each
    return Chunks(starts, torch.minimum(starts + chunk, begin + length), first_chunks)


def ragged_chunks(borders: Tensor, chunk: int) -> Chunks:
    """Chunks of the sequences [borders[i], borders[i + 1]); waits for the device once.

    Args:
        borders: Ascending token offsets, from zero to the number of tokens. [sequences + 1]
        chunk: Most tokens of a chunk.
    """
    borders = borders.to(torch.int64)
    counts = (borders.diff() + chunk - 1) // chunk
    first_chunks = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    sequence = torch.repeat_interleave(counts)
    index = torch.arange(sequence.numel(), device=borders.device) - first_chunks[sequence]
    starts = borders[sequence] + index * chunk
    stops = torch.minimum(starts + chunk, borders[sequence + 1])
    return Chunks(starts, stops, first_chunks.to(torch.int32))
