"""Modelled speed: the timed call priced on a named GPU, and eager PyTorch beside it.

Both sides pay alike: every kernel launch and every torch operation is one launch with a roofline
of its own. `docs/virtual_gpu.md` describes the model. The counts come from the candidate's
process; a candidate that forged them could misreport its speed, and nothing but its speed, down
to the time that its own outputs take to write.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

import torch

from ..tasks.inputs import draw_inputs
from ..tasks.model import Task
from ..tasks.modules import in_probe_dtype, reference_module
from ..tasks.observation import Observation, OutputTensor
from ..tasks.probe import Probe
from ..tasks.shrinking import input_elements
from ..tasks.work import CallWork, KernelWork, OperationWork
from ..vgpu.operations import Operation, operations_of
from ..vgpu.timing import TARGETS, Counts, Target, model, model_operation
from .comparison import describe, outcome_of
from .results import Results, instantiate
from .speed import Speed
from .truth import Truth

TARGET = "A100"
"""The GPU that times are modelled on, unless another one's code was run."""


def timed_probe(task: Task, seed: int, *, native_fits: bool) -> Probe:
    """The call that speed is taken on, at the largest shape there is a truth for.

    Args:
        task: the problem.
        seed: of the verdict.
        native_fits: whether the native shape is small enough to be judged.
    """
    if native_fits or not task.family.base:
        return instantiate(task, [Probe(values="own", timed=True)], seed)[0]
    origin = task.origin or task.id
    members = [task.family.base, *task.family.variants(), task.family.long]
    sizes = max(filter(None, members), key=lambda m: input_elements(task.source, m, origin))
    return instantiate(task, [Probe(sizes=dict(sizes), values="normal", timed=True)], seed)[0]


def modelled_speed(results: Results, probe: Probe, name: str = TARGET) -> Speed | str:
    """Modelled times of a timed call, or why there are none, in one sentence.

    Args:
        results: what was observed.
        probe: the timed call.
        name: of the GPU, as in `vgpu.timing.TARGETS`.
    """
    seen = results.observations.get(probe)
    reason = untimed(probe, results.truths.get(probe), seen)
    if reason or seen is None:
        return reason
    if seen.work is None:
        return "this device does not count what kernels do"
    if _moved_bytes(seen.work) < _own_bytes(seen.outputs):
        return "the counts do not account for the outputs: fewer bytes moved than were returned"
    target = TARGETS[name]
    try:
        candidate_us = _time_us(seen.work, target)
    except ValueError as error:
        return str(error)
    if not candidate_us:
        return "the timed call ran nothing"
    eager = _eager(results.task, probe.question)
    return Speed(
        kind="modelled",
        target=name,
        probe=probe.label,
        candidate_us=candidate_us,
        eager_us=sum(_operation_us(o.bytes, o.operations, target) for o in eager),
        launches=sum(kernel.launches for kernel in seen.work.kernels),
        operations=sum(operation.calls for operation in seen.work.operations),
        bytes=_moved_bytes(seen.work),
        mma_operations=_added(kernel.mma_operations for kernel in seen.work.kernels),
        kernels=by_kernel(seen.work.kernels),
    )


def untimed(probe: Probe, truth: Truth | None, seen: Observation | None) -> str:
    """Why a timed call has no speed whatever its time: it was not made, or not judged right."""
    if truth is None or seen is None or truth.error:
        return "the timed call could not be made"
    if truth.draws_random:
        return "the reference draws random numbers, so the timed outputs cannot be compared"
    wrong = outcome_of(probe, truth, seen).evidence
    return f"the timed outputs are wrong: {describe(wrong)}" if wrong is not None else ""


def by_kernel(works: Iterable[KernelWork]) -> tuple[KernelWork, ...]:
    """All launches of each kernel together, in order of first appearance."""
    groups: dict[str, list[KernelWork]] = {}
    for work in works:
        groups.setdefault(work.kernel, []).append(work)
    return tuple(
        KernelWork(
            kernel=kernel,
            launches=sum(w.launches for w in group),
            blocks=sum(w.blocks for w in group),
            warps=sum(w.warps for w in group),
            instructions=_added(w.instructions for w in group),
            loaded_bytes=sum(w.loaded_bytes for w in group),
            stored_bytes=sum(w.stored_bytes for w in group),
            sectors=sum(w.sectors for w in group),
            footprint_bytes=sum(w.footprint_bytes for w in group),
            bank_conflicts=sum(w.bank_conflicts for w in group),
            mma_operations=_added(w.mma_operations for w in group),
        )
        for kernel, group in groups.items()
    )


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def _time_us(work: CallWork, target: Target) -> float:
    kernels = sum(_kernel_us(kernel, target) for kernel in work.kernels)
    return kernels + sum(_shared_us(operation, target) for operation in work.operations)


def _kernel_us(work: KernelWork, target: Target) -> float:
    """Launches of equal work: each takes the roofline of its share."""
    counts = Counts(
        blocks=max(1, work.blocks // work.launches),
        warps=max(1, work.warps // work.launches),
        instructions=work.instructions,
        footprint_bytes=work.footprint_bytes,
        mma_operations=work.mma_operations,
    )
    time = model(counts, target)
    return time.total_us + (work.launches - 1) * time.launch_us


def _shared_us(work: OperationWork, target: Target) -> float:
    time = model_operation(work.bytes, work.operations, target)
    return time.total_us + (work.calls - 1) * time.launch_us


def _operation_us(moved_bytes: int, products: Mapping[str, int], target: Target) -> float:
    return model_operation(moved_bytes, products, target).total_us


def _moved_bytes(work: CallWork) -> int:
    kernels = sum(kernel.footprint_bytes for kernel in work.kernels)
    return kernels + sum(operation.bytes for operation in work.operations)


def _own_bytes(outputs: Iterable[OutputTensor]) -> int:
    """Bytes of the outputs that somebody must have written."""
    return sum(
        tensor.data.element_size()
        * math.prod(
            size if step else min(size, 1)
            for size, step in zip(tensor.data.shape, tensor.stride, strict=True)
        )
        for tensor in outputs
        if tensor.shares_storage_with is None
    )


@lru_cache(maxsize=256)
def _eager(task: Task, question: Probe) -> tuple[Operation, ...]:
    """The operations of the reference on the same inputs."""
    module = in_probe_dtype(reference_module(task, question), question)
    inputs = draw_inputs(task, question)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        return operations_of(lambda: module(*inputs))
