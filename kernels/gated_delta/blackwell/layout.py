"""Packed tokens as the native stages want them: all chunks of a head one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..chunks import Chunks


@dataclass(frozen=True, slots=True)
class Layout:
    """Where chunks of [tokens, H, …] lie in [S, H, N, …], S sequences of N chunks.

    Rows without a token hold zeros, and so do chunks behind the last of a shorter sequence: in
    every stage they leave the others' results as they are, to the last bit.
    """

    chunk: Tensor
    """Index of each chunk, 0 where there is none. [S, N]"""
    has_chunk: Tensor
    """[S, N]"""
    token: Tensor
    """Index of each token, 0 where there is none. [S, N, C]"""
    has_token: Tensor
    """[S, N, C]"""

    def by_chunk(self, rows: Tensor, width: int) -> Tensor:
        """[tokens, H, D] → [S, H, N, C, width], with zeros for channels from D on."""
        gathered = rows[self.token].masked_fill(~self.has_token[..., None, None], 0.0)
        return _widened(gathered.permute(0, 3, 1, 2, 4), width)

    def by_token(self, rows: Tensor, width: int) -> Tensor:
        """The reverse, in float32; drops channels from `width` on."""
        tokens = rows.permute(0, 2, 3, 1, 4)[self.has_token][..., :width]
        result = torch.empty_like(tokens)
        result[self.token[self.has_token]] = tokens
        return result

    def matrices(self, matrices: Tensor, rows: int, columns: int) -> Tensor:
        """[chunks, H, A, B] → [S, H, N, rows, columns], with zeros beyond A and B."""
        gathered = matrices[self.chunk].masked_fill(~self.has_chunk[..., None, None, None], 0.0)
        return _taller(_widened(gathered.transpose(1, 2), columns), rows)

    def packed_matrices(self, matrices: Tensor, rows: int, columns: int) -> Tensor:
        """The reverse; drops what lies beyond rows and columns."""
        cut = matrices[..., :rows, :columns]
        return cut.transpose(1, 2)[self.has_chunk].contiguous()


def layout_of(chunks: Chunks, length: int) -> Layout:
    """The layout of some chunks of at most `length` tokens; waits for the device once."""
    counts = chunks.first_chunks.diff().to(torch.int64)
    place = torch.arange(int(counts.max()), device=counts.device)
    has_chunk = place < counts[:, None]
    chunk = torch.where(has_chunk, chunks.first_chunks[:-1, None] + place, 0)
    row = torch.arange(length, device=counts.device)
    token = chunks.starts[chunk][..., None] + row
    has_token = has_chunk[..., None] & (token < chunks.stops[chunk][..., None])
    return Layout(chunk, has_chunk, torch.where(has_token, token, 0), has_token)


def _widened(x: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, width - x.shape[-1]))


def _taller(x: Tensor, rows: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, 0, 0, rows - x.shape[-2]))
