"""Domains of a task's inputs: declared by the task, or inferred from its own `get_inputs`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from .families import DOMAINS, draw_values
from .model import Task, TaskError
from .randomness import seed_generators
from .reference import Reference, one_line, task_reference

SAMPLES = 3
"""Draws of `get_inputs` from which a domain is inferred."""
FEW_VALUES = 4
"""A floating tensor with no more distinct values than this is a code, not a measurement."""
STRUCTURAL_ZEROS = 0.1
"""A larger share of exact zeros is structure (triangular, diagonal, masked)."""
ONE_SIDED = ("unit", "nonnegative", "positive", "negative")
"""Domains that may say more about the author's habits than about the operation."""


def own_inputs(reference: Reference, seed: int) -> list[Any]:
    """The reference's own inputs under a seed; the global generator is left as it was.

    Raises:
        TaskError: `get_inputs` fails.
    """
    with torch.random.fork_rng(devices=[]):
        seed_generators(seed)
        try:
            return list(reference.get_inputs())
        except Exception as error:
            raise TaskError(f"get_inputs of the reference fails: {one_line(error)}") from error


@lru_cache(maxsize=256)
def domains(task: Task) -> tuple[str | None, ...]:
    """One domain for every entry of `get_inputs`; `None` for what is not a tensor.

    A one-sided domain is inferred only where the reference needs it: KernelBench draws nearly
    everything from [0, 1), and a ReLU that is never shown a negative number cannot be judged.

    Raises:
        TaskError: an unknown declared domain, or a reference that fails on its own inputs.
    """
    reference = task_reference(task, task.family.base)
    samples = [own_inputs(reference, seed) for seed in range(SAMPLES)]
    found: list[str | None] = []
    declared = iter(task.domains)
    for index, value in enumerate(samples[0]):
        if not isinstance(value, torch.Tensor):
            found.append(None)
            continue
        domain = next(declared, None)
        if domain is not None and domain not in DOMAINS:
            known = ", ".join(DOMAINS)
            raise TaskError(f"task {task.id}: no domain named {domain!r}; known: {known}")
        found.append(domain or _inferred(reference, samples, index))
    return tuple(found)


def _inferred(reference: Reference, samples: Sequence[Sequence[Any]], index: int) -> str:
    domain = _infer([sample[index] for sample in samples])
    if domain in ONE_SIDED:
        return _widen(reference, samples[0], index, domain)
    return domain


def _infer(samples: Sequence[torch.Tensor]) -> str:
    first = samples[0]
    if not first.is_floating_point():
        return "own"
    if len(samples) > 1 and all(torch.equal(first, other) for other in samples[1:]):
        return "own"
    values = torch.stack([sample.double().reshape(-1) for sample in samples])
    if not values.isfinite().all():
        return "own"
    if values.unique().numel() <= FEW_VALUES:
        return _code(values)
    if (values == 0).double().mean() > STRUCTURAL_ZEROS or _symmetric(first):
        return "own"
    return _range(first.double(), values)


def _code(values: torch.Tensor) -> str:
    distinct = set(values.unique().tolist())
    if distinct <= {-1.0, 1.0}:
        return "sign"
    if distinct <= {0.0, 1.0}:
        return "binary"
    return "own"


def _symmetric(tensor: torch.Tensor) -> bool:
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2] or tensor.shape[-1] < 3:
        return False
    return torch.equal(tensor, tensor.transpose(-1, -2))


def _range(first: torch.Tensor, values: torch.Tensor) -> str:
    if first.dim() and first.shape[-1] > 1:
        # A float32 row of n terms sums to one within n half-ulps.
        slack = first.shape[-1] * torch.finfo(torch.float32).eps
        if (values >= 0).all() and ((first.sum(-1) - 1).abs() <= slack).all():
            return "probability"
        if (values <= 0).all() and ((first.exp().sum(-1) - 1).abs() <= slack).all():
            return "log_probability"
    if (values >= 0).all():
        if values.max() <= 1:
            return "unit"
        return "positive" if (values > 0).all() else "nonnegative"
    if (values < 0).all():
        return "negative"
    return "real"


def _widen(reference: Reference, inputs: Sequence[Any], index: int, narrow: str) -> str:
    """`real` if the reference stays finite in float64 on real values there, else `narrow`."""
    trial = [
        value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in inputs
    ]
    trial[index] = draw_values(
        "normal", "real", trial[index].shape, torch.float32, 0, index
    ).double()
    model = reference.build().double()
    try:
        with torch.no_grad():
            output = model(*trial)
    except Exception:  # noqa: BLE001 - a reference that refuses real values keeps its domain
        return narrow
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(output) if torch.is_tensor(leaf)]
    finite = all(leaf.isfinite().all() for leaf in tensors if leaf.is_floating_point())
    return "real" if finite else narrow
