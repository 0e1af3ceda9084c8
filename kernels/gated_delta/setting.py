"""What the launches of one call share: sizes, tiles, kinds of gates, places of chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .chunks import Chunks
from .device import ABSENT, PER_CHANNEL, PER_HEAD

SUB = 16
"""Tokens of a block within a chunk."""
CHUNKS = {torch.float32: 32, torch.float16: 64, torch.bfloat16: 64}
"""Tokens of a chunk by the dtype of the operands. Work within chunks grows with their length, and
float32 products have no tensor cores to do it."""
WARPS = 8
"""Of every kernel: with four, tiles do not fit the registers of a thread."""
THREAD_REGISTERS = 255
"""The most that one thread has, and eight warps may: offered aloud where the assembler would spill
to make room for more blocks."""
OPERANDS = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
"""The dtypes of q, k and v, and what kernels call them."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Packed inputs; gates may be absent."""

    q: Tensor
    """[tokens, H, K]"""
    k: Tensor
    """[tokens, H, K]"""
    v: Tensor
    """[tokens, H, V]"""
    g: Tensor | None
    """[tokens, H] or [tokens, H, K]"""
    b: Tensor | None
    """[tokens, H] or [tokens, H, K]"""
    w: Tensor | None
    """[tokens, H] or [tokens, H, V]"""


@dataclass(frozen=True, slots=True)
class Setting:
    """Constants of one call, and the keyword arguments that kernels take them by."""

    heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    """Of the operands."""
    scale: float
    chunks: Chunks
    g: int
    """Kind of the gate, as kernels read it."""
    b: int
    w: int

    @property
    def places(self) -> dict[str, Tensor]:
        """Where chunks lie."""
        return {"starts": self.chunks.starts, "stops": self.chunks.stops}

    @property
    def widths(self) -> dict[str, int]:
        """K and V."""
        return {"key_dim": self.key_dim, "value_dim": self.value_dim}

    @property
    def tile(self) -> dict[str, Any]:
        """Tokens of a chunk, and the dtype of operands."""
        return {"C": CHUNKS[self.dtype], "OPERAND": OPERANDS[self.dtype]}

    @property
    def grid(self) -> tuple[int, int]:
        """One program for each chunk and head."""
        return self.chunks.count, self.heads

    @property
    def block_grid(self) -> tuple[int, int]:
        """One program for each block of a chunk, and head."""
        return self.chunks.count * (CHUNKS[self.dtype] // SUB), self.heads

    @property
    def scan_tile(self) -> dict[str, int]:
        """All K, and as many value channels as registers and shared memory hold."""
        keys = block_for(self.key_dim, limit=256)
        limit = 16 if self.dtype == torch.float32 or keys == 256 else 32
        return {"KEYS": keys, "BLOCK": block_for(self.value_dim, limit)}

    @property
    def product_depth(self) -> int:
        """Most channels that one product of token rows adds over.

        Without tensor cores a thread holds whole rows and columns of a product in registers.
        """
        return 16 if self.dtype == torch.float32 else 64

    @property
    def state_slice(self) -> int:
        """Key channels of a state that one product adds over."""
        return 16 if self.dtype == torch.float32 else 128

    @property
    def scan_grid(self) -> tuple[int, int, int]:
        """One program for each tile of value channels, head and sequence."""
        tiles = triton.cdiv(self.value_dim, self.scan_tile["BLOCK"])
        return tiles, self.heads, self.chunks.sequences

    @property
    def matrix_shape(self) -> tuple[int, ...]:
        """Of A, M and T: [chunks, H, C, C]."""
        return self.chunks.count, self.heads, CHUNKS[self.dtype], CHUNKS[self.dtype]

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Of states at chunks' borders: [chunks, H, K, V]."""
        return self.chunks.count, self.heads, self.key_dim, self.value_dim

    @property
    def end_shape(self) -> tuple[int, ...]:
        """Of states at sequences' borders: [sequences, H, K, V]."""
        return self.chunks.sequences, self.heads, self.key_dim, self.value_dim


def setting_for(tokens: Tokens, chunks: Chunks, scale: float) -> Setting:
    """The setting of a call."""
    _, heads, key_dim = tokens.k.shape
    kinds = (_kind_of(gate) for gate in (tokens.g, tokens.b, tokens.w))
    value_dim, dtype = tokens.v.shape[2], tokens.q.dtype
    return Setting(heads, key_dim, value_dim, dtype, scale, chunks, *kinds)


def block_for(width: int, limit: int = 64) -> int:
    """Tile width over channels: a power of two, from what a matrix product takes to the limit."""
    return max(16, min(limit, triton.next_power_of_2(width)))


def _kind_of(gate: Tensor | None) -> int:
    if gate is None:
        return ABSENT.value
    return PER_HEAD.value if gate.dim() == 2 else PER_CHANNEL.value
