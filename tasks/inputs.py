"""Inputs of a probe: the tensors and values of one call, in the probe's dtype and layout."""

from __future__ import annotations

from typing import Any

import torch

from .domains import domains, own_inputs
from .families import FIXED_DOMAINS, draw_values
from .model import Task, TaskError
from .probe import Probe
from .reference import task_reference

PADDING = 5
"""Elements between rows in the `offset` layout: odd, so that vector loads are misaligned."""
OFFSET = 3
"""Elements before the first one in the `offset` layout."""

PLAIN_TYPES = (bool, int, float, str, type(None))


def dtype_named(name: str) -> torch.dtype:
    """The torch dtype of a name such as `float32`."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no dtype named {name!r}")
    return dtype


def draw_inputs(task: Task, probe: Probe) -> tuple[Any, ...]:
    """Everything `forward` is called with: CPU tensors and plain values, in order.

    Floating tensors have the probe's dtype, all others the dtype `get_inputs` gives them.

    Raises:
        TaskError: `get_inputs` fails or returns something that is no tensor and no plain value.
    """
    reference = task_reference(task, probe.sizes)
    dtype = dtype_named(probe.dtype)
    result: list[Any] = []
    tensors = 0
    own = own_inputs(reference, probe.seed)
    for value, domain in zip(own, domains(task), strict=True):
        if isinstance(value, torch.Tensor):
            drawn = _draw_tensor(value, domain or "own", probe, dtype, tensors)
            result.append(lay_out(drawn, probe.layout))
            tensors += 1
        elif isinstance(value, PLAIN_TYPES):
            result.append(value)
        else:
            raise TaskError(
                f"task {task.id}: get_inputs returns a {type(value).__name__}; "
                "tensors, numbers, strings and None can be handed to a candidate"
            )
    return tuple(result)


def _draw_tensor(
    own: torch.Tensor, domain: str, probe: Probe, dtype: torch.dtype, position: int
) -> torch.Tensor:
    if not own.is_floating_point():
        return own
    if probe.values == "own" or domain in FIXED_DOMAINS:
        return own.to(dtype)
    return draw_values(probe.values, domain, own.shape, dtype, probe.seed, position)


def lay_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """Equal values in another memory layout; `expanded` repeats the first entry of axis 0.

    A tensor that has too few axes for a layout stays contiguous.
    """
    match layout:
        case "contiguous":
            return tensor.contiguous()
        case "transposed":
            if tensor.dim() < 2:
                return tensor.contiguous()
            return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
        case "offset":
            return _sliced(tensor)
        case "expanded":
            if tensor.dim() < 2:
                return tensor.contiguous()
            return tensor[:1].contiguous().expand(tensor.shape)
    raise ValueError(f"no layout named {layout!r}")


def _sliced(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() == 0:
        return tensor.clone()
    *outer, width = tensor.shape
    padded = torch.zeros((*outer, width + PADDING + OFFSET), dtype=tensor.dtype)
    view = padded[..., OFFSET : OFFSET + width]
    view.copy_(tensor)
    return view
