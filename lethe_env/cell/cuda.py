"""A real CUDA device: the input memory is mirrored on it, guard zones included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from ..vgpu.timing import TARGETS
from .arena import CellMemory, extent, look_at
from .poison import PoisonMode
from .protocol import DTYPES, WireTensor


@dataclass(frozen=True)
class _DeviceBytes:
    """Bytes of device memory, offered so that torch makes them a storage of their own."""

    buffer: torch.Tensor

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.buffer.numel(),),
            "typestr": "|u1",
            "data": (self.buffer.data_ptr(), False),
            "version": 3,
        }


class CudaDevice:
    """The first visible CUDA device. See `device.Device`."""

    own_clock = True
    side_by_side = None
    target = TARGETS["A100"]

    def __init__(self) -> None:
        self._mirror = torch.empty(0, dtype=torch.uint8)
        self._used_bytes = 0

    def active(self) -> AbstractContextManager[object]:
        """Fresh memory is poisoned; everything else is real."""
        return PoisonMode()

    def receive(self, memory: CellMemory, wires: Sequence[WireTensor]) -> list[torch.Tensor]:
        """Copy the whole input memory over; tensors lie at the same addresses in every call."""
        self._used_bytes = extent(wires)
        if self._mirror.numel() < self._used_bytes:
            self._mirror = torch.empty(2 * self._used_bytes, dtype=torch.uint8, device="cuda")
        self._mirror[: self._used_bytes].copy_(memory.input_bytes(self._used_bytes))
        return [self._tensor(wire) for wire in wires]

    def finish(self, memory: CellMemory) -> None:
        """Wait for every kernel, then copy the input memory back for the judge to compare."""
        torch.cuda.synchronize()
        memory.input_bytes(self._used_bytes).copy_(self._mirror[: self._used_bytes])

    def keep(self, view: torch.Tensor) -> torch.Tensor:
        """A copy on the device."""
        return view.to("cuda", copy=True)

    def adopt(self, module: torch.nn.Module) -> None:
        """Move the module to the device."""
        module.to("cuda")

    def can_reach(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor lies on the device."""
        return tensor.is_cuda

    def side(self, tensor: torch.Tensor) -> str:
        """By the tensor's own device."""
        return "device" if tensor.is_cuda else "host"

    def begin(self, schedule: int) -> None:
        """The hardware schedules as it likes."""

    def launches(self) -> None:
        """Nobody counts; the judge's clock measures."""
        return None

    def findings(self) -> Sequence[Any]:
        """Nothing watches the kernels."""
        return ()

    def excuse(self, error: BaseException) -> tuple[str, str] | None:
        """Whatever it raises is the candidate's."""
        return None

    def watch(self, note: Callable[[bool], None]) -> None:
        """Kernels do not run in this process."""

    def _tensor(self, wire: WireTensor) -> torch.Tensor:
        if wire.storage_bytes == 0:
            empty = torch.empty(0, dtype=DTYPES[wire.dtype], device="cuda")
            return empty.as_strided(wire.shape, wire.stride)
        content = self._mirror[wire.position : wire.position + wire.storage_bytes]
        owned = torch.as_tensor(_DeviceBytes(content), device="cuda")
        return look_at(owned.untyped_storage(), wire)
