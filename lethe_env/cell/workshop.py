"""The judge's side: where cells come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ..tasks.observation import KernelResources, Launch
from ..vgpu.timing import ARCHITECTURES, DEFAULT_ARCHITECTURE
from .arena import InputArena, OutputArena
from .cell import Cell
from .fork_server import ForkServer
from .requests import Limits
from .resources import CompilerPool

if TYPE_CHECKING:
    from .translation import Desk

DEVICES = ("interpreter", "cuda", "vgpu")


def default_device() -> str:
    """`cuda` where there is a CUDA device, else `vgpu`, the virtual one."""
    return "cuda" if torch.cuda.is_available() else "vgpu"


class Workshop:
    """Opens cells. A context manager; not safe for use from several threads at once."""

    def __init__(
        self,
        device: str,
        limits: Limits | None = None,
        prepare: Sequence[str] = (),
        architecture: int = DEFAULT_ARCHITECTURE,
    ) -> None:
        """Prepare; servers start when first needed.

        Args:
            device: `interpreter`, `vgpu` (the virtual GPU) or `cuda`.
            limits: what each cell may use.
            prepare: functions of ours, `module:name`, that are called before any cell is made:
                cells find imported what these import, and made what they make.
            architecture: whose code runs where there is no GPU: 80, 90 or 100.
        """
        if architecture not in ARCHITECTURES:
            known = ", ".join(map(str, ARCHITECTURES))
            raise ValueError(f"unknown architecture {architecture}; known: {known}")
        if device not in DEVICES:
            raise ValueError(f"unknown device {device!r}; known: {', '.join(DEVICES)}")
        self.device = device
        self.limits = limits or Limits()
        self._architecture = architecture
        self._server = ForkServer(device, self.limits, prepare, architecture)
        self._desk = self._open_desk() if device == "vgpu" else None
        compiling = self._server
        if device != "vgpu":
            compiling = ForkServer("compiler", self.limits, prepare)
        self._compilers = CompilerPool(compiling, self.limits, self._find)

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, source: str) -> Cell:
        """A fresh process with the candidate loaded; `Cell.fault` says if that failed.

        Raises:
            HarnessError: no process could be had.
        """
        inputs = InputArena(self.limits.input_bytes)
        outputs = OutputArena(self.limits.output_bytes)
        conversation = self._server.converse("candidate", [inputs.descriptor, outputs.descriptor])
        clerk = self._desk.clerk() if self._desk is not None else None
        cell = Cell(conversation, inputs, outputs, self.limits, clerk)
        cell.load(source)
        return cell

    def resources(
        self, source: str, launches: Sequence[Launch], targets: Sequence[str]
    ) -> tuple[KernelResources, ...]:
        """What each launched kernel needs on each target, without any GPU.

        Args:
            source: the candidate.
            launches: launches as observed; the grid does not matter.
            targets: among `sm_80`, `sm_90` and `sm_100`.

        Returns:
            One entry per launch and target, targets running fastest.

        Raises:
            HarnessError: no compiler process could be had.
        """
        return self._compilers.resources(source, launches, targets)

    def _find(self, launch: Launch, target: str) -> str | None:
        """The PTX that ran: it need not be compiled again for the architecture that it ran as."""
        if self._desk is None or launch.compiled is None or target != f"sm_{self._architecture}":
            return None
        return self._desk.find(launch.compiled.ptx)

    def _open_desk(self) -> Desk:
        from .translation import Desk  # the virtual GPU takes a second to import

        return Desk(self._server.converse, self.limits)

    def close(self) -> None:
        """End all servers and all cells."""
        self._server.close()
        self._compilers.close()
