"""Shared memory between judge and cell: inputs between guard zones, outputs, a status page.

The judge maps the input arena, whose size is sealed, and reads the output arena with `pread`
alone, so nothing a candidate does to either can raise a signal in the judge.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Sequence

import torch

from ..tasks.observation import PHASES
from .protocol import DTYPES, HarnessError, WireTensor, dtype_name

ALIGNMENT_BYTES = 64
GUARD_BYTES = 4096
GUARD_BYTE = 0xFF
"""NaN in every floating format, so a read outside an input shows as well as a write."""

STATUS_BYTES = 4096
_STATUS = struct.Struct("<II")


def create_memory(name: str, size_bytes: int) -> int:
    """A new memory file of fixed size; its pages exist only once touched."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size_bytes)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def align(position: int) -> int:
    """The next multiple of `ALIGNMENT_BYTES`."""
    return -(-position // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def extent(wires: Sequence[WireTensor]) -> int:
    """Bytes of the input memory that these tensors take, guard zones included."""
    return max(
        (align(wire.position + wire.storage_bytes) + GUARD_BYTES for wire in wires), default=0
    )


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of the tensor's storage as a uint8 view."""
    view = torch.empty(0, dtype=torch.uint8)
    storage = tensor.untyped_storage()
    return view.set_(storage, 0, (storage.nbytes(),), (1,))


def look_at(storage: torch.UntypedStorage, wire: WireTensor) -> torch.Tensor:
    """The tensor that the description makes of these bytes."""
    view = torch.empty(0, dtype=DTYPES[wire.dtype], device=storage.device)
    return view.set_(storage, wire.storage_offset, wire.shape, wire.stride)


class InputArena:
    """The judge's side of the input memory."""

    def __init__(self, size_bytes: int) -> None:
        self.descriptor = create_memory("lethe-inputs", size_bytes)
        self.size_bytes = size_bytes
        self._bytes = torch.frombuffer(mmap.mmap(self.descriptor, size_bytes), dtype=torch.uint8)
        self._placed: list[tuple[WireTensor, torch.Tensor]] = []

    def place(self, tensors: Sequence[torch.Tensor]) -> list[WireTensor]:
        """Write the tensors' storages, each between two guard zones, from the start.

        Raises:
            HarnessError: the tensors do not fit.
        """
        self._placed = []
        cursor = 0
        for tensor in tensors:
            content = storage_bytes(tensor)
            position = align(cursor + GUARD_BYTES)
            cursor = align(position + content.numel()) + GUARD_BYTES
            if cursor > self.size_bytes:
                raise HarnessError(
                    f"the tensors of one call exceed the cell's {self.size_bytes} input bytes; "
                    "raise Limits.input_bytes"
                )
            wire = WireTensor(
                dtype_name(tensor.dtype),
                tuple(tensor.shape),
                tuple(tensor.stride()),
                tensor.storage_offset(),
                content.numel(),
                position,
            )
            self._placed.append((wire, content))
            for guard in self._guards(wire):
                guard.fill_(GUARD_BYTE)
            self._storage(wire).copy_(content)
        return [wire for wire, _ in self._placed]

    def changed(self) -> tuple[int, ...]:
        """Positions of the placed tensors whose bytes are no longer what was written."""
        return tuple(
            index
            for index, (wire, content) in enumerate(self._placed)
            if not torch.equal(self._storage(wire), content)
        )

    def guards_broken(self) -> tuple[int, ...]:
        """Positions of the placed tensors whose guard zones were written to."""
        return tuple(
            index
            for index, (wire, _) in enumerate(self._placed)
            if any(bool((guard != GUARD_BYTE).any()) for guard in self._guards(wire))
        )

    def close(self) -> None:
        """Release the memory."""
        self._placed = []
        self._bytes = torch.empty(0, dtype=torch.uint8)
        os.close(self.descriptor)

    def _storage(self, wire: WireTensor) -> torch.Tensor:
        return self._bytes[wire.position : wire.position + wire.storage_bytes]

    def _guards(self, wire: WireTensor) -> tuple[torch.Tensor, torch.Tensor]:
        end = wire.position + wire.storage_bytes
        after = self._bytes[end : align(end) + GUARD_BYTES]
        return self._bytes[wire.position - GUARD_BYTES : wire.position], after


class OutputArena:
    """The judge's side of the output memory: read with `pread` only."""

    def __init__(self, size_bytes: int) -> None:
        self.descriptor = create_memory("lethe-outputs", STATUS_BYTES + size_bytes)

    def read(self, position: int, size_bytes: int) -> torch.Tensor:
        """Fresh uint8 tensor with the bytes at `position`."""
        target = torch.empty(size_bytes, dtype=torch.uint8)
        view = memoryview(target.numpy())
        done = 0
        while done < size_bytes:
            count = os.preadv(self.descriptor, [view[done:]], position + done)
            if count == 0:
                raise HarnessError("the output memory ended early")
            done += count
        return target

    def status(self) -> tuple[str, int]:
        """The phase the cell last entered, and the launches of the current call."""
        phase, launches = _STATUS.unpack(os.pread(self.descriptor, _STATUS.size, 0))
        return PHASES[phase] if phase < len(PHASES) else "protocol", launches

    def close(self) -> None:
        """Release the memory."""
        os.close(self.descriptor)


class CellMemory:
    """The cell's side of both memories."""

    def __init__(self, input_descriptor: int, output_descriptor: int) -> None:
        self._inputs = mmap.mmap(input_descriptor, 0)
        self._outputs = mmap.mmap(output_descriptor, 0)
        self._limit = len(self._outputs)
        self._cursor = STATUS_BYTES
        os.close(input_descriptor)
        os.close(output_descriptor)

    def note(self, phase: str, launches: int) -> None:
        """Leave phase and launch count where the judge finds them after a crash."""
        _STATUS.pack_into(self._outputs, 0, PHASES.index(phase), launches)

    def tensor(self, wire: WireTensor) -> torch.Tensor:
        """The tensor as the judge described it, on the shared bytes themselves."""
        if wire.storage_bytes == 0:
            return torch.empty(0, dtype=DTYPES[wire.dtype]).as_strided(wire.shape, wire.stride)
        content = torch.frombuffer(
            self._inputs, dtype=torch.uint8, count=wire.storage_bytes, offset=wire.position
        )
        return look_at(content.untyped_storage(), wire)

    def input_bytes(self, size_bytes: int) -> torch.Tensor:
        """The first bytes of the input memory, guard zones included."""
        return torch.frombuffer(self._inputs, dtype=torch.uint8, count=size_bytes)

    def restart(self) -> None:
        """Forget the outputs written so far."""
        self._cursor = STATUS_BYTES

    def write(self, tensor: torch.Tensor) -> int | None:
        """Write the tensor's values contiguously.

        Returns:
            The byte position, or `None` if the memory is full.
        """
        size_bytes = tensor.numel() * tensor.element_size()
        position = align(self._cursor)
        if position + size_bytes > self._limit:
            return None
        self._cursor = position + size_bytes
        if size_bytes:
            target = torch.frombuffer(
                self._outputs, dtype=torch.uint8, count=size_bytes, offset=position
            )
            torch.Tensor.copy_(target.view(tensor.dtype).view(tensor.shape), tensor)
        return position
