"""Where a cell's tensors live: on the CPU in disguise, or on a CUDA device."""

from __future__ import annotations

import glob
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import torch

from ..vgpu.timing import TARGETS, Counts, Target
from .arena import CellMemory
from .cuda_stand_in import DeviceStandIn, is_host
from .protocol import WireTensor
from .side_by_side import SideBySide


class Device(Protocol):
    """What the agent needs to know about a device."""

    own_clock: bool
    """Whether Triton can time kernels on it."""
    side_by_side: SideBySide | None
    """Compiles several kernels at once, where that has been arranged for."""
    target: Target
    """The GPU that times are modelled on."""

    def active(self) -> AbstractContextManager[object]:
        """The context in which a candidate's code runs."""

    def receive(self, memory: CellMemory, wires: Sequence[WireTensor]) -> list[torch.Tensor]:
        """The tensors of one call, as the candidate gets them."""

    def finish(self, memory: CellMemory) -> None:
        """Wait for the device; put what became of the inputs where the judge looks."""

    def keep(self, view: torch.Tensor) -> torch.Tensor:
        """A copy that outlives the call."""

    def adopt(self, module: torch.nn.Module) -> None:
        """Move parameters and buffers to the device, as KernelBench does after construction."""

    def can_reach(self, tensor: torch.Tensor) -> bool:
        """Whether a kernel can access the tensor."""

    def side(self, tensor: torch.Tensor) -> str:
        """`device` or `host`."""

    def begin(self, schedule: int) -> None:
        """A call begins; the number settles what a GPU leaves open, where the device can."""

    def launches(self) -> list[tuple[str, Counts]] | None:
        """Kernel name and counts of each launch since `begin`; `None` where nobody counts.

        Taking entries off the end takes those launches back.
        """

    def findings(self) -> Sequence[Any]:
        """What kernels did since `begin` that no correct kernel does: `vgpu.session.Finding`."""

    def excuse(self, error: BaseException) -> tuple[str, str] | None:
        """Why the exception is not the candidate's: kind of fault, and a reason."""

    def watch(self, note: Callable[[bool], None]) -> None:
        """Have it noted when native code of the device begins and ends, where there is any."""


class InterpreterDevice:
    """CPU tensors that say they lie on a CUDA device; Triton's interpreter runs the kernels."""

    own_clock = False
    side_by_side: SideBySide | None = None
    target = TARGETS["A100"]

    def active(self) -> AbstractContextManager[object]:
        """A fresh stand-in mode."""
        return DeviceStandIn()

    def receive(self, memory: CellMemory, wires: Sequence[WireTensor]) -> list[torch.Tensor]:
        """The shared bytes themselves."""
        return [memory.tensor(wire) for wire in wires]

    def finish(self, memory: CellMemory) -> None:
        """Nothing to wait for."""

    def keep(self, view: torch.Tensor) -> torch.Tensor:
        """A copy with the same strides."""
        return view.clone()

    def adopt(self, module: torch.nn.Module) -> None:
        """Take the host's mark off parameters and buffers."""
        module._apply(lambda tensor: tensor.cuda())

    def can_reach(self, tensor: torch.Tensor) -> bool:
        """Host tensors cannot be reached."""
        return self.side(tensor) == "device"

    def side(self, tensor: torch.Tensor) -> str:
        """By the mark."""
        return "host" if is_host(tensor) else "device"

    def begin(self, schedule: int) -> None:
        """Programs run in order, whatever the number."""

    def launches(self) -> list[tuple[str, Counts]] | None:
        """The interpreter counts nothing."""
        return None

    def findings(self) -> Sequence[Any]:
        """The interpreter notices nothing."""
        return ()

    def excuse(self, error: BaseException) -> tuple[str, str] | None:
        """Whatever it raises is the candidate's."""
        return None

    def watch(self, note: Callable[[bool], None]) -> None:
        """There is none."""


def open_device(name: str, channel: socket.socket, architecture: int) -> Device:
    """The device of this name.

    Args:
        name: `interpreter`, `vgpu` or `cuda`.
        channel: to the judge, from whom the virtual GPU gets its native code.
        architecture: whose code the virtual GPU runs.
    """
    if name == "cuda":
        from .cuda import CudaDevice

        return CudaDevice()
    if name == "vgpu":
        from .translation import Client
        from .virtual import VirtualDevice

        return VirtualDevice(Client(channel), architecture)
    return InterpreterDevice()


def accelerator_files(device: str) -> tuple[Path, ...]:
    """Device files that a cell of this device has to open."""
    if device != "cuda":
        return ()
    found = [
        path
        for pattern in ("nvidia*", "nvidia-caps/*", "dri/*")
        for path in glob.glob(f"/dev/{pattern}")
    ]
    return tuple(Path(path) for path in sorted(found))
