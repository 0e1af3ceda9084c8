"""From PTX to registers and spills. It starts a process, so no candidate is ever loaded here."""

from __future__ import annotations

import contextlib
import io
import re
import socket
from collections.abc import Mapping
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime.errors import PTXASError

from .conversation import serve

_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores")
_ERROR = re.compile(r"ptxas\S*\s[^\n]*?(?:error|fatal)\s*:\s*([^\n]+)")


class Assembler:
    """Assembles what the judge sends, exactly as Triton would."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def serve(self) -> None:
        """Answer requests one after the other."""
        triton.knobs.nvidia.dump_ptxas_log = True
        serve(self._channel, {"assemble": self._assemble})

    def _assemble(self, request: Mapping[str, Any]) -> dict[str, Any]:
        architecture = int(request["target"].removeprefix("sm_"))
        backend = make_backend(GPUTarget("cuda", architecture, 32))
        options = backend.parse_options({})
        log = io.StringIO()
        try:
            with contextlib.redirect_stdout(log):
                backend.make_cubin(request["ptx"], {}, options, architecture)
        except PTXASError as error:
            return {"error": refusal(str(error))}
        return figures(log.getvalue())


def figures(log: str) -> dict[str, Any]:
    """Registers and spilled bytes per thread, from the assembler's log."""
    registers, spills = _REGISTERS.findall(log), _SPILLS.findall(log)
    if not registers:
        return {"error": "the assembler did not say how many registers the kernel uses"}
    return {
        "registers": max(map(int, registers)),
        "spill_bytes": max(map(int, spills), default=0),
    }


def refusal(text: str) -> str:
    """Why the assembler refused, in one sentence."""
    found = _ERROR.search(text)
    reason = found[1].strip() if found else " ".join(text.split())[:300]
    return f"the assembler refused the kernel: {reason}"
