"""The derivation of a truth: from a task and a probe to values, bounds and what is charged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..tasks.families import NON_FINITE
from ..tasks.inputs import draw_inputs, dtype_named
from ..tasks.model import Task
from ..tasks.modules import in_probe_dtype, reference_module
from ..tasks.probe import Probe
from ..tasks.reference import one_line
from .annihilation import PaddingCounts, ZeroAnnihilates
from .evaluation import Run, copy_value, evaluate, is_floating, run_working
from .rounding import Estimate, Precision, allowed, estimate
from .truth import Truth, TruthTensor

HALF_TYPES = (torch.float16, torch.bfloat16)
SUBNORMAL_FAMILIES = ("subnormal", "signed_zero", "zeros")
"""Input families that ask how a kernel treats subnormal numbers."""


def compute_truth(task: Task, probe: Probe, *, tf32: bool, samples: int) -> Truth:
    """Evaluate a probe's truth, without any cache.

    Args:
        task: the task.
        probe: the question.
        tf32: whether matrix products may round float32 inputs to TF32.
        samples: perturbed runs of the rounding model.

    Raises:
        TaskError: the reference cannot be built or its inputs cannot be drawn.
    """
    inputs = draw_inputs(task, probe)
    module = in_probe_dtype(reference_module(task, probe), probe)
    try:
        working = run_working(probe, deepcopy(module), inputs)
    except Exception as error:  # noqa: BLE001 - an input the reference cannot take is not charged
        return Truth(error=one_line(error))
    wide = _WideRun(module.double(), inputs, working, gradients=probe.gradients)
    precision = Precision(dtype=dtype_named(probe.dtype), tf32=tf32 and probe.dtype == "float32")
    try:
        usual = estimate(wide, precision, samples=samples, seed=probe.seed)
        strict = _without_flushing(wide, precision, probe, usual, samples)
        others = _other_conventions(wide, probe)
    except Exception as error:  # noqa: BLE001 - a reference that float64 breaks is not charged
        return Truth(error=f"in float64: {one_line(error)}")
    tensors = [
        _truth_tensor(path, tensor, value, deviations, precision)
        for (path, tensor), value, *deviations in zip(
            (*working.outputs, *working.gradients),
            usual.values,
            usual.deviation,
            strict.deviation,
            strict=True,
        )
    ]
    for other in others:
        tensors = [_agreed(one, two) for one, two in zip(tensors, other, strict=True)]
    count = len(working.outputs)
    return Truth(
        outputs=tuple(tensors[:count]),
        gradients=tuple(tensors[count:]),
        output_is_view=working.output_is_view,
        changes_inputs=working.changes_inputs,
        reduction_terms=usual.reduction_terms,
        draws_random=usual.draws_random,
        unmodelled=usual.unmodelled,
    )


@dataclass(frozen=True, slots=True)
class _WideRun:
    """The reference in float64, called any number of times with the same state."""

    module: torch.nn.Module
    inputs: Sequence[Any]
    working: Run
    gradients: bool

    def __call__(self) -> list[torch.Tensor]:
        given = [None if each is None else each.double() for each in self.working.cotangents]
        inputs = [v.double() if is_floating(v) else copy_value(v) for v in self.inputs]
        result = evaluate(self._fresh(), inputs, given if self.gradients else None)
        return [tensor for _, tensor in (*result.outputs, *result.gradients)]

    def _fresh(self) -> torch.nn.Module:
        """The module with a state of its own; large parameters are shared if it only reads them."""
        parameters = () if self.working.changes_parameters else self.module.parameters()
        with _disable_current_modes():  # which would make another dtype of plain tensors
            return deepcopy(self.module, {id(parameter): parameter for parameter in parameters})


def _without_flushing(
    run: Callable[[], list[torch.Tensor]],
    precision: Precision,
    probe: Probe,
    usual: Estimate,
    samples: int,
) -> Estimate:
    """The estimate for a kernel that keeps subnormal numbers, where the probe is about them."""
    if probe.values not in SUBNORMAL_FAMILIES:
        return usual
    keeping = replace(precision, flushes_subnormals=False)
    return estimate(run, keeping, samples=samples, seed=probe.seed)


def _other_conventions(run: _WideRun, probe: Probe) -> list[list[torch.Tensor]]:
    """The results if products skip exact zeros, and if padding counts as zeros that are multiplied.

    Asked where the probe has non-finite values; the second one, where weights have them.
    """
    conventions: list[TorchDispatchMode] = []
    if probe.values in NON_FINITE or probe.weights == "corrupted":
        conventions.append(ZeroAnnihilates())
    if probe.weights == "corrupted":
        conventions.append(PaddingCounts())
    results = []
    for convention in conventions:
        with convention:
            results.append(run())
    return results


def _agreed(tensor: TruthTensor, other: torch.Tensor) -> TruthTensor:
    """Charge only where both conventions say finite, NaN or infinite alike."""
    if not tensor.values.is_floating_point():
        return replace(tensor, charged=tensor.charged & (tensor.values == other))
    alike = (tensor.values.isnan() == other.isnan()) & (tensor.values.isinf() == other.isinf())
    return replace(tensor, charged=tensor.charged & alike)


def _truth_tensor(
    path: str,
    working: torch.Tensor,
    value: torch.Tensor,
    deviations: Sequence[torch.Tensor],
    precision: Precision,
) -> TruthTensor:
    usual, strict = deviations
    if not working.is_floating_point():
        return TruthTensor(
            path=path,
            dtype=working.dtype,
            values=value,
            allowed=torch.zeros_like(usual),
            allowed_subnormal=torch.zeros_like(usual),
            charged=usual == 0,
            working=working,
        )
    alike = (value.isfinite() == working.isfinite()) & (value.isnan() == working.isnan())
    strayed = _strayed(value, working)
    return TruthTensor(
        path=path,
        dtype=working.dtype,
        values=value,
        allowed=allowed(value, usual, precision, working.dtype).maximum(strayed),
        allowed_subnormal=allowed(
            value,
            strict,
            replace(precision, flushes_subnormals=False),
            working.dtype,
            subnormal=True,
        ).maximum(strayed),
        charged=alike,
        working=working,
    )


def _strayed(value: torch.Tensor, working: torch.Tensor) -> torch.Tensor:
    """How far eager PyTorch's own half-precision result is from the truth.

    On the CPU it keeps some totals in the half type (the mean of a batch norm, the gradient of a
    bias). What the reference itself returns is never a fault.
    """
    if working.dtype not in HALF_TYPES:
        return torch.zeros_like(value)
    return torch.where(value.isfinite(), (working.double() - value).abs(), 0.0).nan_to_num(
        posinf=0.0
    )
