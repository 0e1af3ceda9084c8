"""Evaluation of the reference: outputs, vector-Jacobian products, and its use of memory."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch

from ..tasks.probe import Probe

COTANGENT_SEED = 7919
"""Keeps cotangents independent of the inputs drawn under the same seed."""


def cotangents(probe: Probe, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """Random cotangents of the outputs in their own dtypes; `None` for what is not floating."""
    generator = torch.Generator().manual_seed(probe.seed + COTANGENT_SEED)
    result: list[torch.Tensor | None] = []
    for output in outputs:
        if not output.is_floating_point():
            result.append(None)
            continue
        normal = torch.randn(output.shape, generator=generator, dtype=torch.float64)
        result.append(normal.to(output.dtype))
    return result


def flatten(output: Any, path: str = "output") -> list[tuple[str, torch.Tensor]]:
    """Every tensor of a result with its path: `output`, `output[1]`, `output['loss']`.

    Python numbers become 0-dim tensors, `None` is left out.

    Raises:
        TypeError: something that is no tensor, number, sequence or mapping.
    """
    if output is None:
        return []
    if isinstance(output, torch.Tensor):
        return [(path, output)]
    if isinstance(output, bool | int):
        return [(path, torch.tensor(output))]
    if isinstance(output, float):
        return [(path, torch.tensor(output, dtype=torch.float64))]
    if isinstance(output, dict):
        items = [(f"{path}[{key!r}]", value) for key, value in output.items()]
    elif isinstance(output, list | tuple):
        items = [(f"{path}[{index}]", value) for index, value in enumerate(output)]
    else:
        raise TypeError(f"{path} is a {type(output).__name__}, not a tensor")
    return [leaf for name, value in items for leaf in flatten(value, name)]


@dataclass(frozen=True, slots=True)
class Run:
    """One evaluation of a module: outputs and vector-Jacobian products with their paths."""

    outputs: list[tuple[str, torch.Tensor]]
    gradients: list[tuple[str, torch.Tensor]]
    cotangents: list[torch.Tensor | None]
    output_is_view: bool = False
    """Whether an output lies in memory of an input or a parameter."""
    changes_inputs: tuple[int, ...] = ()
    changes_parameters: bool = False


def run_working(probe: Probe, module: torch.nn.Module, inputs: Sequence[Any]) -> Run:
    """Evaluate a module as a user would, in the probe's dtype, and note how it treats memory."""
    own = [copy_value(value) for value in inputs]
    copy = deepcopy(module)
    with torch.no_grad():
        outputs = flatten(copy(*own))
    given = cotangents(probe, [tensor for _, tensor in outputs])
    storages = {value.untyped_storage().data_ptr() for value in own if torch.is_tensor(value)}
    storages |= {parameter.untyped_storage().data_ptr() for parameter in copy.parameters()}
    changed = tuple(
        index
        for index, (before, after) in enumerate(_tensor_pairs(inputs, own))
        if not _equal(before, after)
    )
    pairs = zip(module.parameters(), copy.parameters(), strict=True)
    changes_parameters = not all(_equal(before, after) for before, after in pairs)
    result = evaluate(
        module, [copy_value(value) for value in inputs], given if probe.gradients else None
    )
    return Run(
        outputs=[(path, tensor.detach()) for path, tensor in outputs],
        gradients=result.gradients,
        cotangents=given,
        output_is_view=any(t.untyped_storage().data_ptr() in storages for _, t in outputs),
        changes_inputs=changed,
        changes_parameters=changes_parameters,
    )


def evaluate(
    module: torch.nn.Module, inputs: Sequence[Any], given: Sequence[torch.Tensor | None] | None
) -> Run:
    """Evaluate a module, and its vector-Jacobian products where cotangents are given."""
    if given is None:
        with torch.no_grad():
            return Run(flatten(module(*inputs)), [], [])
    with torch.enable_grad():
        names, leaves = _differentiable(module, inputs)
        outputs = flatten(module(*inputs))
        pairs = [
            (tensor, cotangent)
            for (_, tensor), cotangent in zip(outputs, given, strict=True)
            if cotangent is not None and tensor.requires_grad
        ]
        gradients = _vector_jacobian(pairs, leaves)
    return Run(
        outputs=[(path, tensor.detach()) for path, tensor in outputs],
        gradients=list(zip(names, gradients, strict=True)),
        cotangents=list(given),
    )


def _differentiable(
    module: torch.nn.Module, inputs: Sequence[Any]
) -> tuple[list[str], list[torch.Tensor]]:
    names, leaves = [], []
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    for index, value in enumerate(tensors):
        if value.is_floating_point():
            names.append(f"grad input[{index}]")
            leaves.append(value.requires_grad_())
    for name, parameter in module.named_parameters():
        if parameter.is_floating_point():
            names.append(f"grad {name}")
            leaves.append(parameter.requires_grad_())
    return names, leaves


def _vector_jacobian(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], leaves: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    if not pairs:
        return [torch.zeros_like(leaf) for leaf in leaves]
    gradients = torch.autograd.grad(
        [tensor for tensor, _ in pairs],
        leaves,
        [cotangent for _, cotangent in pairs],
        allow_unused=True,
    )
    return [
        torch.zeros_like(leaf) if gradient is None else gradient.detach()
        for leaf, gradient in zip(leaves, gradients, strict=True)
    ]


def is_floating(value: Any) -> bool:
    """Whether a value is a floating tensor."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def copy_value(value: Any) -> Any:
    """A copy of a tensor with its strides, repeated axes included. Others as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    single = value
    for axis, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
        if stride == 0 and size > 1:
            single = single.narrow(axis, 0, 1)
    copied = torch.empty_strided(single.shape, single.stride(), dtype=value.dtype).copy_(single)
    return copied.expand(value.shape)


def _equal(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether two tensors hold the same numbers; NaN equals NaN."""
    return torch.equal(before.nan_to_num(), after.nan_to_num())


def _tensor_pairs(
    before: Sequence[Any], after: Sequence[Any]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [
        (first, second)
        for first, second in zip(before, after, strict=True)
        if isinstance(first, torch.Tensor)
    ]
