"""`eval_kernel_against_ref`: KernelBench's entry point, answered by a verifier."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..cell import default_device
from ..gates.kernelbench_rule import Rule
from ..gates.verdict import Verdict
from ..service.client import connect
from ..service.jobs import Job, Verifier
from ..service.options import GraderOptions
from ..tasks.kernelbench_folder import foreign_task
from ..tasks.model import Task, TaskError
from .backends import missing
from .result import (
    CANNOT_RUN_HERE,
    CHECKS,
    NOT_JUDGED,
    KernelExecResult,
    add_times,
    result_of,
    unjudged,
)

log = logging.getLogger(__name__)

PRECISIONS = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How kernels are evaluated; what KernelBench's callers can choose, and what they cannot."""

    check: str = "contract"
    """`contract`: correct is what twelve gates accept. `kernelbench`: what its own rule accepts."""
    rule: Rule = field(default_factory=Rule)
    backend: str = "cuda"
    device: str = ""
    """As the caller named it; recorded and nothing more."""
    measure_performance: bool = False
    excessive_speedup: float | None = 10.0
    """Ratio above which a measured speed-up is flagged; `None` leaves that out."""

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            raise ValueError(f"no check {self.check!r}; known: {', '.join(CHECKS)}")


def eval_kernel_against_ref(
    original_model_src: str,
    custom_model_src: str,
    seed_num: int = 42,
    num_correct_trials: int = 1,
    num_perf_trials: int = 10,
    measure_performance: bool = False,
    timing_method: str = "cuda_event",
    verbose: bool = False,
    build_dir: str | os.PathLike[str] | None = None,
    device: torch.device | int | None = None,
    backend: str = "cuda",
    precision: torch.dtype = torch.float32,
    check_for_excessive_speedup: bool = True,
    excessive_speedup_threshold: float = 10,
    *,
    check: str = "contract",
    tolerance: float | None = None,
    verifier: Verifier | None = None,
    options: GraderOptions | None = None,
) -> KernelExecResult:
    """Evaluate a kernel against its reference; the first fourteen parameters are KernelBench's.

    The candidate runs in a confined process. Never returns `None` and never raises because of a
    candidate: `metadata["status"]` says `judged`, `cannot run here` or `not judged`.

    Args:
        original_model_src: the reference: `Model`, `get_inputs`, `get_init_inputs`.
        custom_model_src: the candidate: `ModelNew`.
        seed_num: KernelBench's rule draws weights and inputs from it. The contract draws its own.
        num_correct_trials: trials of KernelBench's rule. The contract asks all it has to ask.
        num_perf_trials: accepted and unused: calls are made until their time can be told.
        measure_performance: whether times are wanted. They are measured on a GPU only; a modelled
            time is found in `metadata["modelled_speed"]`.
        timing_method: accepted and unused: the judge's clock outside the candidate's process.
        verbose: whether to log the result.
        build_dir: accepted and unused: kernels are compiled into the verifier's own cache.
        device: recorded. Which GPU is used is the verifier's choice.
        backend: recorded. What can run here is decided by what the source imports.
        precision: of KernelBench's rule; the contract asks in it as well, or in float32 where the
            reference cannot take it.
        check_for_excessive_speedup: whether a measured speed-up may be flagged.
        excessive_speedup_threshold: above which ratio.
        check: `contract` or `kernelbench`.
        tolerance: of KernelBench's rule; `None` is its own by precision, its version 0 had 1e-2.
        verifier: who judges; by default this user's broker, which is started if need be.
        options: how to judge, if no verifier is given.

    Raises:
        ValueError: an unknown check, precision or number of trials.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"Invalid precision not supported: {precision}")
    settings = Settings(
        check=check,
        rule=Rule(
            trials=num_correct_trials,
            seed=seed_num,
            precision=PRECISIONS[precision],
            tolerance=tolerance,
        ),
        backend=backend,
        device="" if device is None else str(device),
        measure_performance=measure_performance,
        excessive_speedup=excessive_speedup_threshold if check_for_excessive_speedup else None,
    )
    task = task_of("problem", original_model_src)
    (result,) = evaluate_many([(task, custom_model_src)], settings, verifier, options)
    if verbose:
        log.info("%s", result)
    return result


def task_of(identity: str, source: str, level: int | None = None, origin: str = "") -> Task | str:
    """The reference as a task, or what is wrong with it."""
    try:
        return foreign_task(identity, source, level=level, origin=origin or "the reference")
    except TaskError as error:
        return str(error)


def evaluate_many(
    pairs: Sequence[tuple[Task | str, str]],
    settings: Settings,
    verifier: Verifier | None = None,
    options: GraderOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[KernelExecResult]:
    """Evaluate many kernels, in order; never raises because of a candidate or a reference.

    Args:
        pairs: tasks, or why there is none, with candidates.
        settings: what to ask.
        verifier: who judges; by default this user's broker.
        options: how to judge, if no verifier is given.
        progress: called with the verdicts there are and the verdicts there will be.
    """
    chosen = options if options is not None else GraderOptions()
    device = default_device() if chosen.device == "auto" else chosen.device
    metadata = _metadata(settings, device)
    results: dict[int, KernelExecResult] = {}
    asked: dict[int, Task] = {}
    for index, (task, source) in enumerate(pairs):
        reason = missing(source, device=device)
        if isinstance(task, str):
            results[index] = unjudged(NOT_JUDGED, task, check=settings.check, metadata=metadata)
        elif reason:
            results[index] = unjudged(
                CANNOT_RUN_HERE, reason, check=settings.check, metadata=metadata
            )
        else:
            asked[index] = _demanding(task, settings.rule)
    jobs = {index: _jobs(task, pairs[index][1], settings) for index, task in asked.items()}
    verdicts = iter(
        _ask([job for each in jobs.values() for job in each], verifier, chosen, progress)
    )
    for index, each in jobs.items():
        results[index] = _result([next(verdicts) for _ in each], settings, metadata)
    return [results[index] for index in range(len(pairs))]


def _ask(
    jobs: Sequence[Job],
    verifier: Verifier | None,
    options: GraderOptions,
    progress: Callable[[int, int], None] | None,
) -> list[Verdict]:
    if not jobs:
        return []
    asked = verifier if verifier is not None else connect(options)
    return asked.grade_many(jobs, progress)


def _jobs(task: Task, source: str, settings: Settings) -> list[Job]:
    """What to ask about one kernel: the rule, the contract, or both if both have to be known."""
    contract = Job(task, source)
    if settings.check == "contract":
        return [contract]
    rule = Job(task, source, settings.rule)
    return [rule, contract] if settings.measure_performance else [rule]


def _result(
    verdicts: Sequence[Verdict], settings: Settings, metadata: Mapping[str, Any]
) -> KernelExecResult:
    result = result_of(verdicts[0], check=settings.check, metadata=metadata)
    if not settings.measure_performance:
        return result
    return add_times(result, verdicts[-1].speed, settings.excessive_speedup)


def _demanding(task: Task, rule: Rule) -> Task:
    """The task whose candidates may not refuse the rule's precision, and may refuse float32."""
    if rule.precision in task.dtypes:
        return task
    others = (dtype for dtype in task.dtypes if dtype != "float32")
    return replace(task, dtypes=(rule.precision, *others))


def _metadata(settings: Settings, device: str) -> dict[str, Any]:
    """What KernelBench says of the machine."""
    if device == "cuda":
        hardware = torch.cuda.get_device_name() if torch.cuda.is_available() else "cuda"
    else:
        hardware = {"vgpu": "virtual GPU", "interpreter": "Triton's interpreter"}[device]
    return {
        "hardware": hardware,
        "device": settings.device or device,
        "backend": settings.backend.lower(),
        "precision": settings.rule.precision,
    }
