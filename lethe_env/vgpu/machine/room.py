"""Memory of this process that native code is told of by its address."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Room:
    """An array, and where it lies: to ask again takes longer than most of what a launch does."""

    array: np.ndarray | bytearray
    address: int

    @staticmethod
    def of(array: np.ndarray | bytearray) -> Room:
        """The room that an array takes, which must not be empty."""
        return Room(array, address_of(array))


def address_of(array: np.ndarray | bytearray) -> int:
    """Where an array lies that is not empty."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array))
