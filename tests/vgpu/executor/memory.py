"""Memory of one launch: global allocations, a block's shared bytes, a thread's local bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_SPACING = 1 << 40


class Fault(Exception):
    """An access outside every allocation, or across the end of one."""


class GlobalMemory:
    """Arrays at addresses that lie far from each other."""

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []

    def add(self, array: np.ndarray) -> int:
        """Place an array, which stays the caller's; its address."""
        if not array.flags.c_contiguous:
            raise ValueError("a kernel's argument must be contiguous")
        self._buffers.append(array.reshape(-1).view(np.uint8))
        return len(self._buffers) * _SPACING

    def read(self, addresses: np.ndarray, size_bytes: int) -> np.ndarray:
        """Bytes at each address, as `(threads, size_bytes)`."""
        return np.array(
            [self._bytes(int(address), size_bytes) for address in addresses], np.uint8
        ).reshape(len(addresses), size_bytes)

    def write(self, addresses: np.ndarray, data: np.ndarray) -> None:
        """Store the rows of `data`, later threads over earlier ones."""
        for address, row in zip(addresses, data, strict=True):
            self._bytes(int(address), len(row))[:] = row

    def _bytes(self, address: int, size_bytes: int) -> np.ndarray:
        number, offset = divmod(address, _SPACING)
        if not 1 <= number <= len(self._buffers):
            raise Fault(f"the address {address:#x} is in no allocation")
        buffer = self._buffers[number - 1]
        if offset + size_bytes > len(buffer):
            raise Fault(f"bytes {offset} to {offset + size_bytes} of {len(buffer)}")
        if offset % size_bytes:
            raise Fault(f"offset {offset} is no multiple of {size_bytes}")
        return buffer[offset : offset + size_bytes]


class Bank:
    """Bytes addressed from zero: one row for all threads, or one row for each."""

    def __init__(self, size_bytes: int, rows: int = 1) -> None:
        self._bytes = np.zeros((rows, size_bytes), np.uint8)

    def read(
        self, addresses: np.ndarray, size_bytes: int, rows: np.ndarray | int = 0
    ) -> np.ndarray:
        """Bytes at each address, as `(threads, size_bytes)`."""
        return self._bytes[self._index(addresses, size_bytes, rows)]

    def write(self, addresses: np.ndarray, data: np.ndarray, rows: np.ndarray | int = 0) -> None:
        """Store the rows of `data`, later threads over earlier ones."""
        self._bytes[self._index(addresses, data.shape[1], rows)] = data

    def fill(self, offset: int, data: bytes) -> None:
        """Set initial bytes in every row."""
        self._bytes[:, offset : offset + len(data)] = np.frombuffer(data, np.uint8)

    def _index(
        self, addresses: np.ndarray, size_bytes: int, rows: np.ndarray | int
    ) -> tuple[np.ndarray, np.ndarray]:
        first = addresses.astype(np.int64)
        end = self._bytes.shape[1]
        if ((first < 0) | (first + size_bytes > end)).any():
            raise Fault(
                f"shared or local bytes {first.min()} to {first.max() + size_bytes} of {end}"
            )
        if (first % size_bytes).any():
            raise Fault(f"an address is no multiple of {size_bytes}")
        columns = first[:, None] + np.arange(size_bytes)
        row = np.broadcast_to(np.asarray(rows), first.shape)[:, None]
        return row, columns


def to_registers(data: np.ndarray, count: int) -> list[np.ndarray]:
    """Rows of bytes as `count` raw registers each, little-endian, zero-extended."""
    width = data.shape[1] // count
    padded = np.zeros((len(data), count, 8), np.uint8)
    padded[:, :, :width] = data.reshape(len(data), count, width)
    values = padded.view(np.uint64)[:, :, 0]
    return [np.ascontiguousarray(values[:, at]) for at in range(count)]


def to_bytes(registers: Sequence[np.ndarray], width_bytes: int) -> np.ndarray:
    """Raw registers of each thread as a row of bytes."""
    parts = [
        np.ascontiguousarray(register).view(np.uint8).reshape(-1, 8)[:, :width_bytes]
        for register in registers
    ]
    return np.concatenate(parts, axis=1)
