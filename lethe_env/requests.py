"""Requests: what the cell is asked for a probe."""

from __future__ import annotations

import torch

from .cell import CallRequest, ModelRequest
from .gates.evaluation import cotangents
from .gates.truth import Truth
from .tasks.inputs import draw_inputs
from .tasks.model import Task
from .tasks.modules import reference_module
from .tasks.probe import Probe
from .tasks.reference import CONSTRUCTOR_SEED, task_reference


class Requests:
    """Makes requests for the probes of one task; probes with equal weights share a model."""

    def __init__(self, task: Task, call_seconds: float) -> None:
        """Nothing is drawn yet.

        Args:
            task: the problem.
            call_seconds: deadline of one call; half of it is left for autotuning.
        """
        self._task = task
        self._call_seconds = call_seconds
        self._models: dict[Probe, ModelRequest] = {}

    def of(self, probe: Probe, truth: Truth) -> CallRequest:
        """The request of a probe.

        Args:
            probe: the call to make.
            truth: of the probe; cotangents are drawn for its outputs.
        """
        inputs = draw_inputs(self._task, probe)
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        given = None
        if probe.gradients:
            given = tuple(cotangents(probe, [output.working for output in truth.outputs]))
        return CallRequest(
            model=self._model(probe),
            inputs=inputs,
            requires_grad=tuple(probe.gradients and t.is_floating_point() for t in tensors),
            cotangents=given,
            rotation=_rotation(probe),
            mute=probe.mute,
            timed=probe.timed,
            schedule=int(probe.digest[:8], 16),
            tuning_seconds=self._call_seconds / 2,
            deadline_seconds=self._call_seconds,
        )

    def _model(self, probe: Probe) -> ModelRequest:
        seed = 0 if probe.weights == "seed" else probe.seed
        key = Probe(sizes=probe.sizes, dtype=probe.dtype, weights=probe.weights, seed=seed)
        if key not in self._models:
            module = reference_module(self._task, probe)
            buffers = dict(module.named_buffers())
            tensors = {**dict(module.named_parameters()), **buffers}
            self._models[key] = ModelRequest(
                init_inputs=tuple(task_reference(self._task, probe.sizes).init_inputs()),
                seed=CONSTRUCTOR_SEED,
                dtype=probe.dtype,
                noise_seed=probe.seed if probe.weights == "noised" else None,
                weights={name: tensor.detach().clone() for name, tensor in tensors.items()},
                buffers=frozenset(buffers),
                by_shape=self._task.weights_by_shape,
                evaluation_mode=self._task.evaluation_mode,
                replace=probe.weights in ("replaced", "corrupted"),
            )
        return self._models[key]


def _rotation(probe: Probe) -> int:
    """The autotune configuration of a call, counted round; equal questions get the same one."""
    chosen = probe.configuration
    return int(probe.question.digest[:8], 16) if chosen is None else chosen
