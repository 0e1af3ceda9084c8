"""What the judge asks of a cell: limits, how to build the model, what to call."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from .arena import storage_bytes
from .protocol import encode

CONFIGURATION_LIMIT = 32
"""Configurations of one autotuned kernel that are graded."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one cell may use."""

    memory_bytes: int = 8 << 30
    """Address space on top of the warm server's size; on CUDA, private data instead."""
    load_seconds: float = 60.0
    """For loading the source, and again for every construction of a model."""
    compile_seconds: float = 120.0
    """For compiling one kernel for one target."""
    verdict_seconds: float = 600.0
    """Processor time of the whole cell, and time that all calls of one candidate may take."""
    input_bytes: int = 2 << 30
    """All tensors of one call, guard zones included."""
    output_bytes: int = 1 << 30
    """All outputs and gradients of one call."""
    file_bytes: int = 256 << 20
    """Size of any one file in the private folder."""
    processes: int = 64
    """Processes and threads where starting processes is allowed at all."""
    open_files: int = 256


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """How `ModelNew` is to be constructed. Equal content means the same instance in the cell."""

    init_inputs: tuple[Any, ...] = ()
    """Constructor arguments: JSON values and CPU tensors."""
    init_keywords: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    """Given to `torch.manual_seed` before the constructor, which is KernelBench's rule."""
    dtype: str = "float32"
    """Floating parameters and buffers are cast to it after construction."""
    noise_seed: int | None = None
    """If given, constant-valued parameters get noise, see `tasks.weights.noise_constants`."""
    weights: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """The reference's parameters and buffers by name, after the same construction."""
    buffers: frozenset[str] = frozenset()
    """Names in `weights` that are buffers: they are copied where they fit and never required."""
    by_shape: bool = False
    """Whether a tensor finds its place by a shape that only it has, where no name fits."""
    evaluation_mode: bool = False
    """Whether the module is put into evaluation mode."""
    replace: bool = False
    """Whether a call counts only if every reference parameter found its place. If one did not,
    nothing is called and the observation says so."""

    @cached_property
    def digest(self) -> str:
        """Content hash."""
        tensors: list[torch.Tensor] = []
        header = json.dumps([self.header(tensors), self.replace], sort_keys=True)
        content = hashlib.sha256(header.encode())
        for tensor in tensors:
            content.update(f"{tensor.dtype}{tuple(tensor.shape)}{tensor.stride()}".encode())
            content.update(memoryview(storage_bytes(tensor).numpy()))
        return content.hexdigest()[:32]

    def header(self, tensors: list[torch.Tensor]) -> dict[str, Any]:
        """JSON description; the tensors it refers to are appended to `tensors`."""
        return {
            "init_inputs": encode(tuple(self.init_inputs), tensors),
            "init_keywords": encode(dict(self.init_keywords), tensors),
            "seed": self.seed,
            "dtype": self.dtype,
            "noise_seed": self.noise_seed,
            "weights": encode({k: v.detach() for k, v in self.weights.items()}, tensors),
            "buffers": sorted(self.buffers),
            "by_shape": self.by_shape,
            "evaluation_mode": self.evaluation_mode,
        }


@dataclass(frozen=True, kw_only=True)
class CallRequest:
    """One call of a constructed model."""

    model: ModelRequest
    inputs: tuple[Any, ...]
    """Tensors, with the strides and offsets they are to arrive with, and plain values."""
    requires_grad: tuple[bool, ...] = ()
    """Per tensor among the inputs; missing ones are `False`."""
    cotangents: tuple[torch.Tensor | None, ...] | None = None
    """If given, one per output tensor: gradients come back for the flagged inputs and all
    parameters. `None` inside: this output takes no part."""
    rotation: int = 0
    """Picks the autotune configuration."""
    mute: bool = False
    """Whether kernel launches become no-ops."""
    timed: bool = False
    """Whether work is counted, and every autotuned kernel runs its fastest configuration."""
    calls: int = 1
    """Forward calls made in a row; what the last one returns counts, which is on `inputs`."""
    spares: tuple[tuple[Any, ...], ...] = ()
    """Further inputs, through which the calls before the last one rotate."""
    tuning_seconds: float = 15.0
    """Processor time for trying autotune configurations that have not been tried yet."""
    schedule: int = 0
    """Settles the order of thread blocks where the device can choose it."""
    deadline_seconds: float = 30.0
