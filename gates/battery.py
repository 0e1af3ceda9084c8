"""The battery: the twelve gates in order, cheap and decisive ones first within a kind."""

from __future__ import annotations

from types import ModuleType

from ..tasks.model import Task
from ..tasks.probe import Probe
from . import (
    accumulator,
    adversarial_order,
    determinism,
    dtypes,
    gradients,
    hardware,
    non_finite,
    placement,
    shapes,
    subnormals,
    summation,
    values,
)
from .results import Results, instantiate
from .verdict import Finding, not_applicable

GATES: tuple[ModuleType, ...] = (
    values,
    gradients,
    shapes,
    summation,
    determinism,
    adversarial_order,
    dtypes,
    accumulator,
    non_finite,
    subnormals,
    placement,
    hardware,
)
GATE_NAMES: tuple[str, ...] = tuple(gate.NAME for gate in GATES)


def plan(task: Task, seed: int) -> tuple[Probe, ...]:
    """Every probe that some gate in force needs, each once, in a fixed order."""
    probes: dict[Probe, None] = {}
    for gate in GATES:
        if gate.NAME not in task.waived:
            probes.update(dict.fromkeys(instantiate(task, gate.plan(task), seed)))
    return tuple(probes)


def judge(results: Results) -> tuple[Finding, ...]:
    """One finding per gate, in the battery's order."""
    return tuple(_judge(gate, results) for gate in GATES)


def _judge(gate: ModuleType, results: Results) -> Finding:
    reason = results.task.waived.get(gate.NAME)
    if reason is not None:
        return not_applicable(gate.NAME, f"waived by the task: {reason}")
    finding: Finding = gate.judge(results)
    return finding
