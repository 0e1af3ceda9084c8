"""Grading without a cell: observations computed in this process from a plain function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from lethe_env.gates import battery
from lethe_env.gates.evaluation import cotangents, evaluate, flatten
from lethe_env.gates.oracle import Oracle
from lethe_env.gates.results import Results
from lethe_env.tasks.inputs import draw_inputs
from lethe_env.tasks.model import ShapeFamily, Task
from lethe_env.tasks.modules import in_probe_dtype, reference_module
from lethe_env.tasks.observation import KernelResources, Observation, OutputTensor
from lethe_env.tasks.probe import Probe

ROW_SUM = """
import torch

rows = 4096
width = 4096

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        return (x * self.scale).sum(-1)

def get_inputs():
    return [torch.randn(rows, width)]

def get_init_inputs():
    return [width]
"""

Candidate = Callable[[torch.nn.Module, Probe], torch.nn.Module]


@pytest.fixture(scope="session")
def row_sum() -> Task:
    return Task(
        id="test/row_sum",
        source=ROW_SUM,
        op_class="reduction",
        family=ShapeFamily(
            base={"rows": 9, "width": 131},
            vary={"rows": (1, 7), "width": (1, 127, 129)},
            long={"rows": 5, "width": 2053},
        ),
        dtypes=("float32", "float16", "bfloat16"),
        gradients=True,
    )


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    return Oracle(cache_directory=None)


@pytest.fixture(scope="session")
def observe():
    """The observation that a module gives, as a well-behaved cell would report it."""

    def run(task: Task, probe: Probe, module: torch.nn.Module) -> Observation:
        inputs = draw_inputs(task, probe)
        with torch.no_grad():
            outputs = flatten(module(*inputs))
        gradients = []
        if probe.gradients:
            given = cotangents(probe, [tensor for _, tensor in outputs])
            gradients = evaluate(module, draw_inputs(task, probe), given).gradients
        return Observation(
            outputs=tuple(OutputTensor(path=path, data=tensor) for path, tensor in outputs),
            gradients=tuple(OutputTensor(path=path, data=tensor) for path, tensor in gradients),
        )

    return run


@pytest.fixture(scope="session")
def grade_in_process(oracle, observe):
    """Findings by gate for a candidate given as a change to the reference."""

    def grade(task: Task, candidate: Candidate = lambda module, probe: module, change=None):
        probes = [probe for probe in battery.plan(task, 0) if probe.sizes]
        truths = {probe: oracle.truth(task, probe.question, tf32=False) for probe in probes}
        observations = {}
        for probe in probes:
            module = in_probe_dtype(reference_module(task, probe), probe)
            seen = observe(task, probe, candidate(module, probe))
            observations[probe] = change(probe, seen) if change else seen
        results = Results(
            task=task,
            truths=truths,
            observations=observations,
            resources=(KernelResources(kernel="k", target="sm_90", registers=32, threads=128),),
        )
        return {finding.gate: finding for finding in battery.judge(results)}

    return grade


@pytest.fixture
def corrupted():
    """An observation whose first output is off by far more than any bound."""

    def change(seen: Observation) -> Observation:
        first, *rest = seen.outputs
        wrong = replace(first, data=first.data * 3 + 1)
        return replace(seen, outputs=(wrong, *rest))

    return change
