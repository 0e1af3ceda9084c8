"""The virtual GPU's address space: every storage has a window of its own, with nothing beside it.

Device addresses are fake. A window spans 2**40 bytes and its storage begins in the middle, so a
pointer that strays by less than half a terabyte lands in no other storage. The low bits of a
storage's real address are kept, because Triton specialises kernels on alignment. A real address
gets the same window whenever memory is allocated there, as it would on a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

WINDOW_BITS = 40
WINDOW_LIMIT = 1 << 16
_KEPT_BITS = 12
_MIDDLE = 1 << (WINDOW_BITS - 1)

COLUMNS = ("base", "size_bytes", "host", "defined")
"""Columns of `AddressSpace.table`, all uint64."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A kernel argument that is an address."""

    address: int
    """Fake address; 0 is the null pointer."""
    name: str = ""
    """The parameter it is passed as."""


@dataclass(slots=True)
class _Window:
    number: int
    storage: StorageWeakRef
    size_bytes: int
    defined: np.ndarray | None = None


class AddressSpace:
    """Fake addresses for torch storages, and the table by which a machine resolves them.

    `table` is a C-contiguous uint64 array with one row per window number, that is
    `address >> WINDOW_BITS`. A row holds the fake address of the storage's first byte, its size in
    bytes, its real address, and the real address of one byte per byte of the storage that is 1
    where it has been written (0: all of it is defined). A row of zeros is not mapped.
    """

    def __init__(self) -> None:
        self.table = np.zeros((64, len(COLUMNS)), dtype=np.uint64)
        self._windows: dict[int, _Window] = {}

    def pointer(self, tensor: torch.Tensor, name: str = "") -> Pointer:
        """The argument that a kernel gets for a tensor."""
        return Pointer(self.address(tensor), name)

    def address(self, tensor: torch.Tensor) -> int:
        """Fake address of the tensor's first element; 0 where the storage is empty."""
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0:
            return 0
        window = self._window(storage)
        offset = tensor.storage_offset() * tensor.element_size()
        return int(self.table[window.number, 0] + offset)

    def mark_undefined(self, tensor: torch.Tensor) -> None:
        """Nobody has written the tensor's storage yet."""
        storage = tensor.untyped_storage()
        if storage.nbytes():
            window = self._window(storage)
            window.defined = np.zeros(window.size_bytes, dtype=np.uint8)
            self.table[window.number, 3] = window.defined.ctypes.data

    def mark_defined(self, tensor: torch.Tensor) -> None:
        """Something other than a kernel has written to the tensor's storage."""
        window = self._windows.get(tensor.untyped_storage().data_ptr())
        if window is not None and window.defined is not None:
            window.defined = None
            self.table[window.number, 3] = 0

    def sweep(self) -> None:
        """Unmap what has been freed, so that its addresses are dead for the next launch."""
        for window in self._windows.values():
            if self.table[window.number, 1] and window.storage.expired():
                window.defined = None
                self.table[window.number] = 0

    def locate(self, address: int) -> tuple[int, int, int] | None:
        """The window an address points into.

        Returns:
            Window number, byte offset from the storage's start (negative before it), and the
            storage's size in bytes; `None` where no storage is mapped.
        """
        number = address >> WINDOW_BITS
        if not 0 < number < len(self.table) or not self.table[number, 1]:
            return None
        base, size_bytes = (int(value) for value in self.table[number, :2])
        return number, address - base, size_bytes

    def describe(self, address: int, arguments: Mapping[str, Pointer]) -> str:
        """Where an address points, in the words of a launch's arguments."""
        place = self.locate(address)
        if place is None:
            return f"address {address:#x}, where no tensor lies"
        number, offset, size_bytes = place
        owners = [name for name, p in arguments.items() if p.address >> WINDOW_BITS == number]
        owner = f"argument {owners[0]}" if owners else "a tensor that is no argument"
        return f"byte {offset} of the {size_bytes} bytes of {owner}"

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Fake base and size of every mapped storage."""
        for base, size_bytes, _, _ in self.table.tolist():
            if size_bytes:
                yield base, size_bytes

    def _window(self, storage: torch.UntypedStorage) -> _Window:
        host, size_bytes = storage.data_ptr(), storage.nbytes()
        window = self._windows.get(host)
        if window is None:
            window = _Window(len(self._windows) + 1, StorageWeakRef(storage), size_bytes)
            self._windows[host] = window
            self._reserve(window.number)
            self._map(window, host)
        elif window.storage.cdata != storage._cdata or window.size_bytes != size_bytes:
            window.storage, window.size_bytes = StorageWeakRef(storage), size_bytes
            window.defined = None
            self._map(window, host)
        elif not self.table[window.number, 1]:
            self._map(window, host)
        return window

    def _map(self, window: _Window, host: int) -> None:
        kept = host & ((1 << _KEPT_BITS) - 1)
        base = (window.number << WINDOW_BITS) + _MIDDLE + kept
        self.table[window.number] = (base, window.size_bytes, host, 0)

    def _reserve(self, number: int) -> None:
        if number >= WINDOW_LIMIT:
            raise MemoryError(f"more than {WINDOW_LIMIT} distinct allocations were used by kernels")
        while number >= len(self.table):
            self.table = np.concatenate([self.table, np.zeros_like(self.table)])
