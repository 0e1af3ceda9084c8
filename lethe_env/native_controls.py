"""The native Blackwell backward as a control: what gates ask, asked of its gradients.

Asked in this process, with the gates' own truths, bounds and limits, at the full width of the
native kernels and under every schedule; `native_verdicts` has all gates ask, at small shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import nn

from .gates.comparison import describe, outcome_of
from .gates.determinism import same_bytes
from .gates.evaluation import cotangents, evaluate
from .gates.hardware import excesses
from .gates.oracle import Oracle
from .kernels.footprint import Footprint, footprint
from .kernels.gated_delta.blackwell import natively
from .kernels.gated_delta.blackwell.compilation import KEYS, VALUES
from .kernels.gated_delta.blackwell.execution import executable, known_stages
from .kernels.gated_delta.blackwell.modules import MODULES
from .kernels.gated_delta.member_problem import draw_member, kernel_results, true_results
from .kernels.gated_delta.problem import worst_relative_error
from .tasks.catalog import find_task
from .tasks.inputs import draw_inputs
from .tasks.model import Task
from .tasks.modules import in_probe_dtype, reference_module
from .tasks.observation import KernelResources, Observation, OutputTensor
from .tasks.probe import Probe
from .tasks.reference import task_reference
from .vgpu.cute.function import VirtualFunction
from .vgpu.driver import VirtualDriver

SCHEDULES = ((False, 1), (True, 2), (True, 3))
"""Whether units beside the warps work early, and the seed of the blocks' order, of each replay."""
LENGTHS = (70, 1)
"""Two chunks, the second not full; and a single token."""
LENGTH_OF_LEAKS = 130
"""Three chunks of either head; a block of the native K#2 takes a chunk of both."""
RELATIVE_LIMIT = 1e-3
"""Of the largest element: two units of float16, 2^-11; an operand is off by half a unit, and a
gradient goes through few products."""
ASKED = {
    "CMP-02": "every element of every gradient within the rounding model's bound",
    "CMP-03": "the same for one token, and for two chunks of which the second is not full",
    "ORD-02": "the same bytes under other schedules, and inputs as they were",
    "PRC-01": "each gradient in the dtype of its input",
    "EXC-01": "NaN in one head leaves the gradients of another to the last bit as they are",
    "RES-01": "each gradient there, in the shape of its input",
    "RES-02": "every native kernel fits: registers, shared and tensor memory, threads; no spills",
}
"""Gates whose questions are put, and what they ask here."""


@dataclass(frozen=True, slots=True)
class StageReport:
    """RES-02 of one native kernel: what it takes, and what of it is too much."""

    stage: str
    made_for: str
    """What it was compiled with."""
    footprint: Footprint
    shared_bytes: int
    threads: int

    @property
    def resources(self) -> KernelResources:
        """As the gate sees them."""
        return KernelResources(
            kernel=self.stage,
            target="sm_100",
            registers=self.footprint.registers,
            spill_bytes=self.footprint.spilled_bytes,
            shared_bytes=self.shared_bytes,
            tensor_memory_columns=self.footprint.columns,
            threads=self.threads,
        )

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong, in words."""
        return (*self.footprint.faults, *excesses(self.resources))


@dataclass(frozen=True, slots=True)
class MemberReport:
    """What was seen of one member's gradients, for one width of values."""

    member: str
    value_dim: int
    gradients: int
    """How many there are."""
    worst_ratio: float
    """CMP-02 and CMP-03: largest error over what the rounding model allows, over all lengths."""
    worst_relative_error: float
    """Largest error over largest truth, token-serial float64, states included; of the ladder."""
    replays: int
    """ORD-02: how many under other schedules gave the same bytes."""
    faults: tuple[str, ...]
    """Every question that was answered badly."""


def member_reports(
    driver: VirtualDriver, oracle: Oracle, only: str, note: Callable[[str], None]
) -> Iterator[MemberReport]:
    """Run every member for every width.

    Args:
        driver: Triton's active driver.
        oracle: Where truths come from.
        only: What the member's task has to contain.
        note: Told what comes next.
    """
    for values in VALUES:
        for member, (name, module) in MODULES.items():
            if only in name:
                note(f"{name}, V = {values}: {len(LENGTHS)} truths, {len(SCHEDULES)} replays")
                task = find_task(name)
                yield _member_report(driver, oracle, member, task, module, values)


def stage_reports() -> Iterator[StageReport]:
    """Read what every native kernel takes that has been run on the active driver."""
    for compile_stage, arguments in known_stages():
        function = executable(compile_stage, *arguments)
        if isinstance(function, VirtualFunction) and function.request is not None:
            made_for = _made_for(signature(compile_stage).bind(*arguments).arguments)
            name = compile_stage.__name__.removeprefix("compile_")
            found = footprint(function.compiled.ptx, function.compiled.cubin)
            request = function.request
            yield StageReport(name, made_for, found, request.shared_bytes, request.block[0])


def _made_for(arguments: Mapping[str, Any]) -> str:
    """What a stage is compiled with, in words: numbers, and what is true."""
    given = {name: "" if value is True else f" {value}" for name, value in arguments.items()}
    return ", ".join(f"{x}{given[x]}" for x in given if arguments[x] is not False)


def _member_report(
    driver: VirtualDriver,
    oracle: Oracle,
    member: str,
    task: Task,
    module: type[nn.Module],
    values: int,
) -> MemberReport:
    faults: list[str] = []
    ratios = []
    for length in LENGTHS:
        probe = _probe(task, values, length)
        truth = oracle.truth(task, probe, tf32=False)
        seen = _observe(task, module, probe)
        outcome = outcome_of(probe, truth, seen, gradients=True)
        if outcome.evidence is not None:
            faults.append(f"CMP-02: {describe(outcome.evidence)}")
        ratios.append(outcome.worst_ratio)
        faults += [
            f"PRC-01: {ours.path} is {ours.data.dtype}, not {theirs.dtype}"
            for ours, theirs in zip(seen.gradients, truth.gradients, strict=True)
            if ours.data.dtype != theirs.dtype
        ]
    probe = _probe(task, values, LENGTHS[0])
    replays, differences = _replays(driver, partial(_observe, task, module, probe))
    faults += [*differences, *_leaks(task, module, probe)]
    error = _relative_error(member, values)
    if error > RELATIVE_LIMIT:
        faults.append(f"an error of {error:.1e} of the largest gradient, over {RELATIVE_LIMIT:g}")
    faults += [f"{found.kind}: {found.detail}" for found in driver.session.take_findings()]
    return MemberReport(
        *(member, values, len(truth.gradients), max(ratios), error, replays),
        faults=tuple(dict.fromkeys(faults)),
    )


def _relative_error(member: str, values: int) -> float:
    given = draw_member(member, LENGTHS[0], KEYS, values)
    found, truth = kernel_results(given, backward=natively), true_results(given)
    gradients = [name for name in truth if name.startswith("d")]
    return max(worst_relative_error(found[name], truth[name]) for name in gradients)


def _replays(driver: VirtualDriver, observe: Callable[[], Observation]) -> tuple[int, list[str]]:
    """Make the same call under other schedules; how many gave the same bytes, and what did not."""
    first, alike, faults = observe(), 0, []
    usual = driver.session.early, driver.session.seed
    for driver.session.early, driver.session.seed in SCHEDULES:
        again = observe()
        same = all(map(same_bytes, first.gradients, again.gradients))
        alike += same
        if not same:
            faults.append(f"ORD-02: other bytes under schedule {driver.session.seed}")
        faults += [f"ORD-02: the call changed input {index}" for index in again.inputs_changed]
    driver.session.early, driver.session.seed = usual
    return alike, faults


def _leaks(task: Task, module: type[nn.Module], probe: Probe) -> list[str]:
    """Gradients of the first of two heads that differ if the second one's inputs are NaN."""
    sizes = {**probe.sizes, "num_heads": 2, "length": LENGTH_OF_LEAKS}
    probe = replace(probe, sizes=sizes)
    plain = draw_inputs(task, probe)
    spoilt = [x.clone() for x in plain]
    for x in spoilt:
        x[:, 1] = torch.nan
    pairs = zip(
        _gradients(task, module, probe, plain),
        _gradients(task, module, probe, spoilt),
        strict=True,
    )
    return [
        f"EXC-01: NaN in another head changes {path}"
        for (path, one), (_, other) in pairs
        if not torch.equal(_first_head(one), _first_head(other))
    ]


def _first_head(gradient: torch.Tensor) -> torch.Tensor:
    """Of an input, (batch, heads, …), or of a parameter, (heads)."""
    return gradient[:, 0] if gradient.dim() > 1 else gradient[0]


def _probe(task: Task, values: int, length: int) -> Probe:
    sizes = {"batch_size": 1, "num_heads": 1, "length": length, "key_dim": KEYS}
    sizes = {**task.family.base, **sizes, "value_dim": values}
    return Probe(sizes=sizes, values="normal", dtype="float16", gradients=True)


def _observe(task: Task, module: type[nn.Module], probe: Probe) -> Observation:
    """Make a call in this process, with the weights and inputs that a candidate would get."""
    inputs = draw_inputs(task, probe)
    before = [x.clone() for x in inputs]
    gradients = _gradients(task, module, probe, inputs)
    pairs = zip(before, inputs, strict=True)
    return Observation(
        gradients=tuple(OutputTensor(path=path, data=x) for path, x in gradients),
        inputs_changed=tuple(i for i, (old, new) in enumerate(pairs) if not torch.equal(old, new)),
    )


def _gradients(
    task: Task, module: type[nn.Module], probe: Probe, inputs: Sequence[Any]
) -> list[tuple[str, torch.Tensor]]:
    instance = module(*task_reference(task, probe.sizes).init_inputs())
    instance.load_state_dict(reference_module(task, probe).state_dict())
    values = inputs[2]
    return evaluate(in_probe_dtype(instance, probe), inputs, cotangents(probe, [values])).gradients
