"""The observation: what came back from one probe."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .work import CallWork

PHASES = ("policy", "load", "construct", "weights", "forward", "backward", "protocol", "kernel")
SANITIZER_KINDS = ("out_of_bounds", "uninitialised_read", "race", "barrier", "asynchronous")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a call gave no result.

    The candidate's doing, with two exceptions that are never held against it: `unsupported` means
    that the device cannot run something that a GPU could, `harness` that the device itself broke.
    Any other harness fault is an exception.
    """

    kind: str
    """`refused`, `exception`, `timeout`, `memory`, `signal`, `exit`, `protocol`, `unsupported` or
    `harness`."""
    phase: str
    """Where it happened, one of `PHASES`."""
    message: str
    """One clear sentence."""
    exception: str = ""
    """Name of the exception's type, if it was one."""
    line: int | None = None
    """Line of the candidate's source, if known."""
    launches: int = 0
    """Kernel launches of this call before the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What a kernel was compiled to before it ran."""

    ptx: str
    """Digest of its PTX."""
    shared_bytes: int
    """Of each block, statically and dynamically allocated."""
    tensor_memory_columns: int
    threads: int
    """Of each block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch of a Triton kernel, described well enough to compile it again."""

    kernel: str
    """Name of the `@triton.jit` function."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Parameter name to `{"pointer": dtype}`, `{"value": number}`, `{"constexpr": constant}` or
    `{"dtype": name}`."""
    options: Mapping[str, int] = field(default_factory=dict)
    """`num_warps`, `num_stages`, `num_ctas` as given at the launch."""
    grid: tuple[int, ...] = ()
    tuned: tuple[str, ...] | None = None
    """Parameters that a tuner chose, among at least two configurations; `None` if none did."""
    compiled: Compiled | None = field(default=None, compare=False)
    """`None` where nothing was compiled, or nothing ran."""

    @property
    def choice(self) -> str:
        """Equal for the configurations among which a tuner chose; empty if there was no choice.

        Run-time numbers make no difference.
        """
        if self.tuned is None:
            return ""
        given = {
            name: argument
            for name, argument in self.arguments.items()
            if name not in self.tuned and argument.get("value") is None
        }
        text = json.dumps([self.kernel, given], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Which configuration of an autotuned kernel one call launched."""

    kernel: str
    chosen: str
    """The configuration in words; the one being tried if the call ended in a fault."""
    index: int
    """Its place among those that can be launched here."""
    fitting: int
    """How many those are."""
    unfit: int = 0
    """Configurations that ask for more than the device has."""
    left_out: tuple[str, ...] = ()
    """Configurations beyond the budget, in words; the first ones."""
    left_out_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SanitizerFinding:
    """Something a kernel did that no correct kernel does, seen while it ran."""

    kind: str
    """One of `SANITIZER_KINDS`."""
    kernel: str
    opcode: str
    """The PTX instruction that did it."""
    line: int | None = None
    """Line of the candidate's source, if known."""
    lanes: int = 0
    """How many threads did it."""
    detail: str = ""
    """Which memory, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """What one kernel asks of one thread block, from an ahead-of-time compile for one target."""

    kernel: str
    target: str
    """`sm_80`, `sm_90` or `sm_100`."""
    options: Mapping[str, int] = field(default_factory=dict)
    """`num_warps`, `num_stages`, `num_ctas` it was compiled with."""
    registers: int = 0
    """Registers per thread."""
    spill_bytes: int = 0
    """Bytes of registers spilled to local memory, per thread."""
    shared_bytes: int = 0
    tensor_memory_columns: int = 0
    threads: int = 0
    error: str | None = None
    """Why there is no compile, in one sentence."""
    choice: str = ""
    """See `Launch.choice`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTensor:
    """One tensor the candidate returned, as the judge received it."""

    path: str
    """`output`, `output[1]`, `output['loss']`, `grad input[0]`, `grad weight`."""
    data: torch.Tensor
    """Values on the CPU, contiguous, decoded by the judge from raw bytes."""
    stride: tuple[int, ...] = ()
    """Strides in elements of the tensor the candidate returned."""
    device: str = "device"
    """`device`, or `host` where the candidate moved it off the device."""
    shares_storage_with: str | None = None
    """`input[i]`, `parameter name` or `previous output`, if it is not memory of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one probe gave: outputs, gradients, traces left in memory, launches, or a fault."""

    outputs: tuple[OutputTensor, ...] = ()
    gradients: tuple[OutputTensor, ...] = ()
    missing_gradients: tuple[str, ...] = ()
    """Paths of inputs and parameters to which no gradient came back."""
    inputs_changed: tuple[int, ...] = ()
    """Tensor inputs whose bytes differ after the call."""
    guards_broken: tuple[int, ...] = ()
    """Tensor inputs around which memory outside the tensor was written."""
    weights_matched: bool = True
    """Whether every reference parameter found its place in the candidate."""
    launches: tuple[Launch, ...] = ()
    sanitizer: tuple[SanitizerFinding, ...] = ()
    """What was seen while kernels ran, on devices that watch them."""
    tunings: tuple[Tuning, ...] = ()
    """One per autotuned kernel that was launched."""
    work: CallWork | None = None
    """What a timed call ran, on devices that count it; as the cell states it."""
    fault: Fault | None = None
    time_us: float = 0.0
    """Duration of the call in the cell, by the judge's clock."""
