"""The bound on every problem of the suite, from both sides."""

from __future__ import annotations

import pytest
import torch

from lethe_env.gates import derivation
from lethe_env.gates.comparison import compare
from lethe_env.gates.derivation import compute_truth
from lethe_env.gates.evaluation import flatten
from lethe_env.tasks.catalog import suite
from lethe_env.tasks.inputs import draw_inputs
from lethe_env.tasks.modules import in_probe_dtype, reference_module
from lethe_env.tasks.observation import OutputTensor
from lethe_env.tasks.probe import Probe

from .rounding_cases import HalfTotals, cut_to_tf32

SAMPLES = 16
HALF_MEANS = ("norm/batch_norm", "norm/instance_norm")
"""On the CPU eager PyTorch keeps the mean of these in the half type."""


def truth_of(task, dtype: str, values: str, member: str = "base"):
    probe = Probe(sizes=dict(getattr(task.family, member)), values=values, dtype=dtype)
    return probe, compute_truth(task, probe, tf32=False, samples=SAMPLES)


def worst(probe, truth, outputs) -> float:
    """Largest error over allowed error among the outputs."""
    pairs = zip(truth.outputs, outputs, strict=True)
    return max(compare(probe, t, OutputTensor(path=t.path, data=o)).worst_ratio for t, o in pairs)


def run(task, probe, change=None) -> list[torch.Tensor]:
    """The reference's outputs, with every floating input and parameter changed."""
    module = in_probe_dtype(reference_module(task, probe), probe)
    inputs = list(draw_inputs(task, probe))
    if change is not None:
        inputs = [change(v) if torch.is_tensor(v) and v.is_floating_point() else v for v in inputs]
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(change(parameter.data))
    with torch.no_grad():
        return [tensor for _, tensor in flatten(module(*inputs))]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", suite())
def test_an_honest_eager_run_stays_under(name, dtype, monkeypatch):
    monkeypatch.setattr(derivation, "HALF_TYPES", ())  # the model alone, without the allowance
    task = suite()[name]
    for values in ("own", "normal"):
        probe, truth = truth_of(task, dtype, values)
        outputs = [tensor.working for tensor in truth.outputs]
        if name in HALF_MEANS and dtype == "float16":
            outputs = rounded_once(task, probe)
        assert worst(probe, truth, outputs) <= 1


def rounded_once(task, probe) -> list[torch.Tensor]:
    """A float32 run on the half inputs, rounded at the store."""
    module = in_probe_dtype(reference_module(task, probe), probe).float()
    inputs = [v.float() if v.is_floating_point() else v for v in draw_inputs(task, probe)]
    with torch.no_grad():
        return [tensor.half() for _, tensor in flatten(module(*inputs))]


@pytest.mark.parametrize("name", suite())
def test_a_less_precise_run_goes_over_wherever_there_is_a_reduction(name):
    task = suite()[name]
    probe, truth = truth_of(task, "float32", "normal")
    floating = all(tensor.values.is_floating_point() for tensor in truth.outputs)
    if not floating or truth.reduction_terms <= 1:
        assert task.op_class in ("elementwise", "pooling", "reduction", "recurrence", "other")
        return
    assert worst(probe, truth, run(task, probe, change=cut_to_tf32)) > 1
    with HalfTotals():
        wrong = run(task, probe)
    assert worst(probe, truth, wrong) > 1
