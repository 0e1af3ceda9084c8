"""Lint of a task: what would pass on it that should not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from ..tasks.domains import domains
from ..tasks.footprint import machine_bytes, native_bytes
from ..tasks.inputs import draw_inputs
from ..tasks.model import Task, TaskError
from ..tasks.modules import in_probe_dtype, reference_module
from ..tasks.observation import Observation, OutputTensor
from ..tasks.probe import Probe
from . import values
from .comparison import outcome_of
from .evaluation import copy_value, flatten
from .oracle import Oracle
from .surrogates import taken_by_rule
from .truth import Truth, TruthTensor

Surrogate = Callable[[Truth, TruthTensor, tuple[Any, ...], Truth], torch.Tensor | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """What is wrong with one task, and what is worth knowing about it."""

    task: str
    problems: tuple[str, ...] = ()
    """Each a way in which a wrong kernel would pass, or a fault of the reference."""
    notes: tuple[str, ...] = ()
    kernelbench: tuple[str, ...] = ()
    """What KernelBench's own rule would take on it, which the contract does not."""
    float64: bool | None = None
    """Whether the reference runs in float64; `None` where nothing ran."""
    family: Mapping[str, Any] = field(default_factory=dict)
    """The shape family that was found: `base`, `vary` and `long`."""
    native_bytes: int | None = None
    """Inputs, parameters and outputs at the shape written in the source; `None` if unknown."""
    fits: bool | None = None
    """Whether reference and candidate fit the memory of this machine at that shape."""

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return asdict(self)


def lint(task: Task, oracle: Oracle) -> Lint:
    """Look at one task; never raises for the task's own faults."""
    try:
        native = native_bytes(task.source, task.origin or task.id)
        about = Lint(
            task=task.id,
            family=asdict(task.family),
            native_bytes=native,
            fits=None if native is None else 2 * native <= machine_bytes(),
        )
        truths = _truths(task, oracle)
    except TaskError as error:
        return Lint(task=task.id, problems=(str(error),))
    first = next(iter(truths.values()))
    if first.error:
        return replace(about, problems=(f"the reference fails: {first.error}",), float64=False)
    if first.draws_random:
        note = "draws random numbers: values are not compared"
        return replace(about, notes=(note,), float64=True)
    truths = {probe: truth for probe, truth in truths.items() if not truth.error}
    problems = [*_vacuous(task, truths), *_ignored_inputs(task, oracle), *_ignored(task, oracle)]
    return replace(
        about,
        problems=tuple(problems),
        notes=tuple(_notes(task, truths)),
        kernelbench=tuple(taken_by_rule(task)),
        float64=True,
    )


def _truths(task: Task, oracle: Oracle) -> dict[Probe, Truth]:
    probes = [probe for probe in values.plan(task) if probe.sizes or not task.family.base]
    return {probe: oracle.truth(task, probe, tf32=task.allow_tf32) for probe in probes}


def _vacuous(task: Task, truths: dict[Probe, Truth]) -> Iterator[str]:
    """Outputs that need no kernel, if CMP-01 takes them on every one of its probes."""
    stale = next(iter(truths.values()))
    for name, surrogate in _SURROGATES.items():
        if all(_accepts(task, probe, truth, surrogate, stale) for probe, truth in truths.items()):
            yield f"{name} would pass CMP-01"


def _accepts(task: Task, probe: Probe, truth: Truth, surrogate: Surrogate, stale: Truth) -> bool:
    inputs = draw_inputs(task, probe)
    outputs = []
    for tensor in truth.outputs:
        made = surrogate(truth, tensor, inputs, stale)
        if made is None or made.shape != tensor.values.shape:
            return False
        outputs.append(OutputTensor(path=tensor.path, data=made))
    return outcome_of(probe, truth, Observation(outputs=tuple(outputs))).evidence is None


def _zeros(_: Truth, tensor: TruthTensor, __: tuple[Any, ...], ___: Truth) -> torch.Tensor:
    return torch.zeros_like(tensor.working)


def _first_input(
    _: Truth, __: TruthTensor, inputs: tuple[Any, ...], ___: Truth
) -> torch.Tensor | None:
    return next((value for value in inputs if isinstance(value, torch.Tensor)), None)


def _constant(
    _: Truth, tensor: TruthTensor, __: tuple[Any, ...], stale: Truth
) -> torch.Tensor | None:
    """The mean of another draw: a number known before the inputs are."""
    known = next((t.working for t in stale.outputs if t.path == tensor.path), None)
    if known is None or not known.numel():
        return None
    return torch.full_like(tensor.working, known.double().nanmean().item())


def _stale(_: Truth, tensor: TruthTensor, __: tuple[Any, ...], stale: Truth) -> torch.Tensor | None:
    return next((t.working for t in stale.outputs if t.path == tensor.path), None)


_SURROGATES: dict[str, Surrogate] = {
    "zeros": _zeros,
    "the input itself": _first_input,
    "a constant": _constant,
    "a stale output": _stale,
}


def _ignored_inputs(task: Task, oracle: Oracle) -> Iterator[str]:
    """Floating inputs that can be replaced without leaving the bound."""
    probe = Probe(sizes=dict(task.family.base), values="normal")
    truth = oracle.truth(task, probe, tf32=task.allow_tf32)
    inputs = list(draw_inputs(task, probe))
    others = draw_inputs(task, replace(probe, seed=1))
    module = in_probe_dtype(reference_module(task, probe), probe)
    for index, domain in enumerate(domains(task)):
        if domain is None or not inputs[index].is_floating_point():
            continue
        changed = [others[i] if i == index else copy_value(v) for i, v in enumerate(inputs)]
        if torch.equal(changed[index], inputs[index]):
            continue  # a constant of the task, the same in every draw
        if _within(module, changed, probe, truth):
            yield f"input {index} does not matter: other values of it would pass"


def _ignored(task: Task, oracle: Oracle) -> Iterator[str]:
    """Parameters that can be zeroed without leaving the bound."""
    probe = Probe(sizes=dict(task.family.base), values="normal", weights="noised")
    truth = oracle.truth(task, probe, tf32=task.allow_tf32)
    inputs = draw_inputs(task, probe)
    module = in_probe_dtype(reference_module(task, probe), probe)
    for name, _ in module.named_parameters():
        without = deepcopy(module)
        with torch.no_grad():
            without.get_parameter(name).zero_()
        if _within(without, [copy_value(value) for value in inputs], probe, truth):
            yield f"parameter {name} does not matter: dropping it would pass"


def _within(module: torch.nn.Module, inputs: list[Any], probe: Probe, truth: Truth) -> bool:
    with torch.no_grad():
        outputs = flatten(deepcopy(module)(*inputs))
    seen = Observation(outputs=tuple(OutputTensor(path=path, data=t) for path, t in outputs))
    return outcome_of(probe, truth, seen).evidence is None


def _notes(task: Task, truths: dict[Probe, Truth]) -> Iterator[str]:
    family = task.family
    yield f"base {dict(family.base)}, {len(family.variants())} variants, long {dict(family.long)}"
    yield f"input domains {', '.join(str(domain) for domain in domains(task))}"
    unmodelled = sorted({name for truth in truths.values() for name in truth.unmodelled})
    if unmodelled:
        yield f"operations outside the rounding table: {', '.join(unmodelled)}"
