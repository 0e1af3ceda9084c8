"""Surrogates: outputs that need no kernel, and whether KernelBench's rule takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ..tasks.domains import own_inputs
from ..tasks.inputs import dtype_named
from ..tasks.model import Task
from ..tasks.reference import task_reference
from ..tasks.shrinking import widest_member
from .evaluation import copy_value
from .kernelbench_rule import PAPER_TOLERANCE, Rule, Tally

ELEMENTS = 1 << 22
"""The shape at which this is asked has at most so many elements of inputs and of outputs."""
TRIALS = 2
SURROGATES = ("zeros", "the input itself", "a constant", "a stale output")
RULES: Mapping[str, Rule] = {
    "float32": Rule(trials=TRIALS),
    "bfloat16": Rule(trials=TRIALS, precision="bfloat16"),
    "float32 at version 0's tolerance": Rule(trials=TRIALS, tolerance=PAPER_TOLERANCE),
}


def taken_by_rule(task: Task) -> Iterator[str]:
    """What KernelBench's own rule would take for this task, one sentence each.

    Asked at the native shape, or with fewer rows where that is too large, see `widest_member`.
    """
    sizes = widest_member(task.source, task.origin or task.id, task.family.base, ELEMENTS)
    takers: dict[str, list[str]] = {name: [] for name in SURROGATES}
    for words, rule in RULES.items():
        for name in _taken(task, sizes, rule):
            takers[name].append(words)
    for name, rules in takers.items():
        if rules:
            yield f"KernelBench's rule takes {name} in {', '.join(rules)}"


def _taken(task: Task, sizes: Mapping[str, int], rule: Rule) -> list[str]:
    """The surrogates that a rule takes in all trials."""
    dtype = dtype_named(rule.precision)
    reference = task_reference(task, sizes)
    try:
        module = reference.build().to(dtype)
        draws = [own_inputs(reference, seed) for seed in (*rule.trial_seeds(), rule.seed)]
        cast = [[v.to(dtype) if torch.is_tensor(v) else v for v in inputs] for inputs in draws]
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            outputs = [module(*(copy_value(v) for v in inputs)) for inputs in cast]
    except Exception:  # noqa: BLE001 - a reference that refuses a dtype takes nothing in it
        return []
    if not all(isinstance(output, torch.Tensor) for output in outputs):
        return []
    *wanted, stale = outputs
    return [
        name
        for name in SURROGATES
        if all(
            _agrees(rule, want, _surrogate(name, inputs, want, stale))
            for inputs, want in zip(cast, wanted, strict=False)
        )
    ]


def _agrees(rule: Rule, want: torch.Tensor, have: torch.Tensor | None) -> bool:
    tally = Tally(rule)
    if have is not None:
        tally.compare(want, have)
    return tally.passed == 1


def _surrogate(
    name: str, inputs: list[Any], want: torch.Tensor, stale: torch.Tensor
) -> torch.Tensor | None:
    """An output that needs no kernel; `stale` is that of other inputs."""
    match name:
        case "zeros":
            return torch.zeros_like(want)
        case "the input itself":
            return next((v for v in inputs if torch.is_tensor(v) and v.shape == want.shape), None)
        case "a constant":
            return torch.full_like(want, stale.double().nanmean().item())
    return stale
