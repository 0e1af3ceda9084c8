"""The virtual GPU as a cell's device: CPU tensors in disguise, kernels compiled to PTX and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..vgpu.driver import VirtualDriver
from ..vgpu.memory import AddressSpace
from ..vgpu.session import Finding, Session
from ..vgpu.timing import Counts
from .cuda_stand_in import DEVICE, DeviceStandIn
from .device import InterpreterDevice
from .excuses import excuse
from .poison import UNINITIALISED
from .side_by_side import SideBySide
from .translation import Client

_WRITING_DUNDERS = frozenset({"__setitem__", "__set__"})


class VirtualDevice(InterpreterDevice):
    """As the interpreter's device, with Triton's driver replaced. See `device.Device`."""

    def __init__(self, translate: Client, architecture: int) -> None:
        """Become this process's GPU.

        Args:
            translate: from PTX to native code.
            architecture: what kernels are compiled for, such as 80.
        """
        self._session = Session()
        self.side_by_side = SideBySide(self._session.threads, translate.prepare)
        driver = VirtualDriver(
            self._session,
            architecture=architecture,
            translate=translate,
            device=DEVICE,
            interface=torch.cuda,
        )
        driver.activate()
        self.target = driver.target

    def active(self) -> DeviceStandIn:
        """A fresh stand-in mode that watches who writes what."""
        return _Watched(self._session.memory)

    def begin(self, schedule: int) -> None:
        """Blocks run in an order that follows from `schedule`."""
        self._session.seed = schedule
        self._session.launches = 0
        self._session.counts.clear()
        self._session.findings.clear()

    def launches(self) -> list[tuple[str, Counts]]:
        """The session's own list."""
        return self._session.counts

    def findings(self) -> list[Finding]:
        """What kernels did since `begin` that no correct kernel does."""
        return self._session.take_findings()

    def excuse(self, error: BaseException) -> tuple[str, str] | None:
        """Why the exception is not the candidate's: see `excuses.excuse`."""
        return excuse(error)

    def watch(self, note: Callable[[bool], None]) -> None:
        """Note when a kernel's native code begins and ends."""
        self._session.watch = note


class _Watched(DeviceStandIn):
    """Keeps the address space informed of what torch itself does to memory."""

    def __init__(self, memory: AddressSpace) -> None:
        super().__init__()
        self._memory = memory

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Pass on; note fresh memory, and memory that is no longer undefined."""
        if func is torch.Tensor.data_ptr:
            return self._memory.address(args[0])
        keywords = dict(kwargs) if kwargs else {}
        written = _written(func, args, keywords)
        result = super().__torch_function__(func, types, args, keywords)
        for tensor in written:
            self._memory.mark_defined(tensor)
        if func in UNINITIALISED:
            self._memory.mark_undefined(result)
        return result


def _written(func: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[torch.Tensor]:
    """Tensors that this call of a torch function writes to, views of them included.

    Functions that write say so by a trailing underscore, by `out` or by `inplace`.
    """
    out = keywords.get("out")
    written = [out] if isinstance(out, torch.Tensor) else list(out or ())
    name = getattr(func, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    in_place |= name in _WRITING_DUNDERS or (name.startswith("__i") and name.endswith("__"))
    if (in_place or keywords.get("inplace")) and args:
        first = args[0]
        written += first if isinstance(first, list | tuple) else [first]
    return [tensor for tensor in written if isinstance(tensor, torch.Tensor)]
