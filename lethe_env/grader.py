"""The grader: plan the probes, ask the cell, judge what came back."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from .cell import HarnessError, Limits, Workshop, default_device, review
from .gates.oracle import Oracle
from .gates.truth import Truth
from .gates.verdict import Verdict
from .grading import Grading, broken
from .tasks.catalog import find_task
from .tasks.model import Task, TaskError
from .tasks.observation import Fault, KernelResources, Observation
from .tasks.probe import Probe
from .trials import Trials
from .vgpu.timing import DEFAULT_ARCHITECTURE

if TYPE_CHECKING:
    from .service.jobs import Job

log = logging.getLogger(__name__)

DEFAULT_TARGETS = ("sm_90", "sm_100")

Progress = Callable[[str, int, int], None]
"""Called with the phase, steps done and steps in all."""


def cache_directory() -> Path:
    """Where truths and compiles are kept: `LETHE_CACHE_DIR`, else `~/.cache/lethe_env`."""
    chosen = os.environ.get("LETHE_CACHE_DIR")
    return Path(chosen) if chosen else Path.home() / ".cache" / "lethe_env"


@dataclass(frozen=True, slots=True)
class Vouched:
    """Sources are our own: the source policy is not asked, and they may import a module of ours.

    Their processes are confined as ever.
    """

    prepare: str
    """`module:name` of what is called once in the process that theirs are forked from, so that
    they find the module imported, and made what it makes."""
    resources: tuple[KernelResources, ...] = ()
    """What those of their kernels take that are not Triton's, for RES-02."""


@dataclass(slots=True)
class Grader:
    """Gives verdicts. Holds a warm workshop, so one grader should grade many candidates.

    Use as a context manager, or call `close`.
    """

    device: str = "auto"
    """`cuda`, `vgpu` (the virtual GPU), `interpreter`, or `auto`: `cuda` where there is one, else
    `vgpu`."""
    targets: tuple[str, ...] = DEFAULT_TARGETS
    """Hardware on which every kernel has to fit, see RES-02; none leaves that gate out."""
    seed: int = 0
    """Moves every probe's seed; keep it secret from what is being trained."""
    limits: Limits = field(default_factory=Limits)
    call_seconds: float = 30.0
    """Deadline of one call."""
    cache: Path | None = field(default_factory=cache_directory)
    """`None` keeps truths in memory only."""
    fail_fast: bool = False
    """Whether a candidate is dropped at its first failure, see `gates.stages`. Whether it passes
    does not depend on it."""
    architecture: int = DEFAULT_ARCHITECTURE
    """Whose code runs where there is no GPU, and on whose figures times are modelled: 80 (A100), 90
    (H100) or 100 (B200)."""
    progress: Progress | None = None
    vouched: Vouched | None = None
    """That sources are our own."""
    _workshop: Workshop | None = None
    _oracle: Oracle | None = None

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the warm processes."""
        if self._workshop is not None:
            self._workshop.close()
            self._workshop = None

    def grade(self, task: Task | str, source: str) -> Verdict:
        """Judge one candidate.

        Args:
            task: a task, a suite id, or the path of a KernelBench-convention file.
            source: text that defines `ModelNew`.

        Raises:
            TaskError: the task is at fault: not there, or its reference fails at its base shape.
        """
        task = find_task(task) if isinstance(task, str) else task
        return Grading(self, task, source).verdict()

    def grade_many(
        self, jobs: Sequence[Job], progress: Callable[[int, int], None] | None = None
    ) -> list[Verdict]:
        """Judge candidates one after another; a grader is a `service.jobs.Verifier`.

        Never raises because of a candidate or a task: what could not be judged gets `ERROR`s.

        Args:
            jobs: tasks with sources.
            progress: called with the verdicts there are and the verdicts there will be.
        """
        verdicts: list[Verdict] = []
        for job in jobs:
            verdicts.append(self._grade(job))
            if progress is not None:
                progress(len(verdicts), len(jobs))
        return verdicts

    def _grade(self, job: Job) -> Verdict:
        try:
            if job.rule is not None:
                return Trials(self, job.task, job.source, job.rule).verdict()
            return self.grade(job.task, job.source)
        except (TaskError, HarnessError) as error:
            return broken(job.task, job.source, str(error))
        except Exception as error:  # one broken verdict must not end a training run
            log.exception("the verifier broke on task %s", job.task.id)
            self.close()
            reason = f"the verifier broke: {type(error).__name__}: {error}"
            return broken(job.task, job.source, reason)

    def ask(self, task: Task, source: str, probe: Probe) -> tuple[Truth, Observation]:
        """Make one probe, for reproducing a failure.

        Raises:
            TaskError: the reference cannot take the probe.
            HarnessError: the harness broke.
        """
        with closing(Grading(self, task, source)) as grading:
            grading.truths[probe] = grading.truth(probe)
            fault = self.refusal(source)
            if fault is None:
                grading.observe([probe])
            else:
                grading.observations[probe] = Observation(fault=fault)
            return grading.truths[probe], grading.observations[probe]

    @property
    def device_name(self) -> str:
        """The device that `auto` stands for on this machine."""
        return default_device() if self.device == "auto" else self.device

    @property
    def architecture_name(self) -> str:
        """Whose code runs: `sm_80` and the like, or `native` on a CUDA device."""
        return "native" if self.device_name == "cuda" else f"sm_{self.architecture}"

    def refusal(self, source: str) -> Fault | None:
        """What the source policy says of a source, unless it is vouched for."""
        return review(source) if self.vouched is None else None

    def workshop(self) -> Workshop:
        """The warm workshop, started on first use."""
        if self._workshop is None:
            prepare = () if self.vouched is None else (self.vouched.prepare,)
            self._workshop = Workshop(self.device_name, self.limits, prepare, self.architecture)
        return self._workshop

    def oracle(self) -> Oracle:
        """The oracle with its caches."""
        if self._oracle is None:
            folder = None if self.cache is None else self.cache / "oracle"
            self._oracle = Oracle(cache_directory=folder)
        return self._oracle

    def forget(self) -> None:
        """Drop the truths held in memory; those on disk stay."""
        self._oracle = None

    def report(self, phase: str, done: int, total: int) -> None:
        """Tell the caller how far a verdict has come."""
        if self.progress is not None:
            self.progress(phase, done, total)
