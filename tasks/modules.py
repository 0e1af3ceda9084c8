"""The reference as a module with the weights that a probe asks for."""

from __future__ import annotations

import math

import torch

from .inputs import dtype_named
from .model import Task
from .probe import Probe
from .reference import task_reference
from .weights import noise_constants


def reference_module(task: Task, probe: Probe) -> torch.nn.Module:
    """A fresh reference in float32 with the probe's weights, in the mode that the task asks for.

    Raises:
        TaskError: the reference cannot be built.
    """
    module = task_reference(task, probe.sizes).build()
    with torch.no_grad():
        if probe.weights == "noised":
            noise_constants(_floating(module).items(), probe.seed)
        elif probe.weights in ("replaced", "corrupted"):
            _replace(module, probe.seed, corrupt=probe.weights == "corrupted")
    return module


def in_probe_dtype(module: torch.nn.Module, probe: Probe) -> torch.nn.Module:
    """The module with floating parameters and buffers cast to the probe's dtype, in place."""
    return module.to(dtype_named(probe.dtype))


def _floating(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: tensor
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]
        if tensor.is_floating_point()
    }


def _replace(module: torch.nn.Module, seed: int, *, corrupt: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        if not parameter.is_floating_point():
            continue
        parameter.copy_(_fresh_values(parameter, generator))
        if corrupt:
            _corrupt(parameter, generator)


def _fresh_values(parameter: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Values of the parameter's own scale and sign, so that the operation stays well defined."""
    random = torch.randn(parameter.shape, generator=generator)
    if parameter.numel() and (parameter > 0).all():
        return parameter * (0.5 + torch.rand(parameter.shape, generator=generator))
    if parameter.numel() and (parameter < 0).all():
        return parameter * (0.5 + torch.rand(parameter.shape, generator=generator))
    spread = parameter.std(correction=0) if parameter.numel() > 1 else parameter.abs().max()
    return random * (spread if spread > 0 else torch.tensor(0.5))


def _corrupt(parameter: torch.Tensor, generator: torch.Generator) -> None:
    flat = parameter.view(-1)
    if not flat.numel():
        return
    specials = (math.nan, math.inf, -math.inf)
    for special in specials[: max(1, min(3, flat.numel() // 8))]:
        place = int(torch.randint(0, flat.numel(), (1,), generator=generator))
        flat[place] = special
