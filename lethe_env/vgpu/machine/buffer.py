"""Memory of this process that native code is told of by its address."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

_LINE_BYTES = 128
"""Of a line of a cache and its neighbour, which some processors fetch together."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array and its address: to ask again takes longer than most of what a launch does."""

    array: np.ndarray | bytearray
    address: int

    @staticmethod
    def of(array: np.ndarray | bytearray) -> Buffer:
        """The buffer of an array, which must not be empty."""
        return Buffer(array, address_of(array))


def address_of(array: np.ndarray | bytearray) -> int:
    """Where an array lies that is not empty."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array))


def padded_zeros(size_bytes: int) -> np.ndarray:
    """Zeros, uint8 `[size_bytes]`, with no other data on their cache lines.

    Threads that write to one line wait for each other, whatever they write there.
    """
    whole = np.zeros(size_bytes + 2 * _LINE_BYTES, np.uint8)
    start = -address_of(whole) % _LINE_BYTES
    return whole[start : start + size_bytes]
