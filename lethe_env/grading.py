"""Grading: one candidate on its way through the house."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from .ahead_of_time import compile_ahead
from .cell import CONFIGURATION_LIMIT, CallRequest, Cell, HarnessError
from .gates import (
    battery,
    configurations,
    gradients,
    kernelbench_rule,
    stages,
    unsupported,
    values,
)
from .gates.channels import DEADLY, channels, kernel_role, muted_probe
from .gates.declaration import declares_tf32
from .gates.results import Results, instantiate
from .gates.roofline import modelled_speed, timed_probe, untimed
from .gates.speed import Speed
from .gates.truth import Truth
from .gates.verdict import Verdict, errored, failed
from .measurement import measured_speed
from .requests import Requests
from .specialisation import select
from .surroundings import surroundings
from .tasks.effort import call_units
from .tasks.model import Task, TaskError
from .tasks.observation import Fault, KernelResources, Launch, Observation
from .tasks.probe import Probe
from .tasks.reference import one_line
from .tasks.shrinking import input_elements
from .vgpu.timing import ARCHITECTURES

if TYPE_CHECKING:
    from .grader import Grader

NATIVE_BUDGET_ELEMENTS = 1 << 20
"""The native shape is judged where its inputs have at most about a million elements."""
NATIVE_BUDGET_UNITS = 1 << 22
"""And where one call takes at most this effort, see `tasks.effort`: its truth takes two seconds."""
RESTART_LIMIT = 2
"""Processes one candidate may lose before its remaining probes count as failed unseen."""


class Grading:
    """Plan, oracle, probes, compile, judge; keeps what one candidate has shown so far."""

    def __init__(self, grader: Grader, task: Task, source: str) -> None:
        self.grader, self.task, self.source = grader, task, source
        self.tf32 = task.allow_tf32 or declares_tf32(source)
        self.truths: dict[Probe, Truth] = {}
        self.observations: dict[Probe, Observation] = {}
        self.time_s: dict[str, float] = {}
        self.containment = "not opened"
        self._cell: Cell | None = None
        self._losses: list[Fault] = []
        self._called_s = 0.0
        self._requests = Requests(task, grader.call_seconds)

    def verdict(self) -> Verdict:
        """Run every phase; what breaks on our side becomes `ERROR` findings."""
        fault = self.grader.refusal(self.source)
        if fault is not None:
            return self._unjudged(fault)
        with self._timed("plan"):
            probes = self._plan()
        if self._is_out_of_reach(probes[0]):
            self._ask_in_float32()
            probes = self._plan()
        try:
            fault, reason = self._ask(probes)
            if fault is not None and fault.kind in unsupported.KINDS:
                return self._broken(fault.message)
            if fault is not None:
                return self._unjudged(fault)
            with self._timed("compile"):
                results = self._results() if reason else self._compiled(self._results())
        except HarnessError as error:
            return self._broken(f"the harness broke: {one_line(error)}")
        with self._timed("judge"):
            verdict = self._judged(results)
            return stages.curtail(verdict, results, probes, reason) if reason else verdict

    def close(self) -> None:
        """End the candidate's process."""
        if self._cell is not None:
            translated_s = self.time_s.get("translate", 0.0)
            self.time_s["translate"] = translated_s + self._cell.answering_seconds
            self._cell.close()
            self._cell = None

    def _ask(self, probes: Sequence[Probe]) -> tuple[Fault | None, str]:
        """Make the probes, stage by stage if one failure is enough.

        Returns:
            The fault if nothing loads, and which failure ended the asking, if one did.
        """
        grader = self.grader
        order = stages.divide(self.task, probes, grader.seed) if grader.fail_fast else (probes,)
        with self._timed("oracle"):
            self._check_reference(probes[0])
        try:
            fault = None if grader.fail_fast else self._runs_nowhere(probes)
            if fault is not None:
                return fault, ""
            for stage in order:
                with self._timed("oracle"):
                    self._derive(stage)
                left = [p for p in stage if not self.truths[p].error and p not in self.observations]
                with self._timed("probes"):
                    fault = self.observe(left)
                if fault is not None:
                    return fault, ""
                if grader.fail_fast and (reason := self._failure()):
                    return None, reason
            with self._timed("probes"):
                return self._call_each(self._configurations()), ""
        finally:
            self.close()

    def _runs_nowhere(self, probes: Sequence[Probe]) -> Fault | None:
        """The first exception of a candidate that raises one in every kind of call."""
        first = None
        scouts = list(stages.scouts(self.task, probes))
        random.Random(self.grader.seed).shuffle(scouts)
        for probe in scouts:
            with self._timed("oracle"):
                self._derive([probe])
            if self.truths[probe].error:
                continue
            with self._timed("probes"):
                fault = self.observe([probe])
            if fault is not None:
                return fault
            fault = self.observations[probe].fault
            if fault is None or fault.kind != "exception":
                return None
            first = first or fault
        return first

    def _failure(self) -> str:
        with self._timed("judge"):
            return stages.failure(self._results())

    def _derive(self, probes: Sequence[Probe]) -> None:
        for step, probe in enumerate(probes):
            self.grader.report("oracle", step, len(probes))
            self.truths[probe] = self.truth(probe)

    def _judged(self, results: Results) -> Verdict:
        speed = self._speed(results)
        verdict = Verdict(
            task=self.task.to_json(),
            source=self.source,
            findings=battery.judge(results),
            channels=channels(results),
            kernel=kernel_role(results),
            allclose=kernelbench_rule.judge(results),
            speed=speed if isinstance(speed, Speed) else None,
            notes=self._notes(speed),
            environment=self._environment(),
            time_s=self.time_s,
        )
        return unsupported.void(verdict, results)

    def _speed(self, results: Results) -> Speed | str:
        probe = self._timed_probe()
        if self.grader.device_name != "cuda":
            return modelled_speed(results, probe, ARCHITECTURES[self.grader.architecture])
        truth = results.truths.get(probe)
        reason = untimed(probe, truth, results.observations.get(probe))
        if reason or truth is None:
            return reason
        shop, name = self.grader.workshop(), torch.cuda.get_device_name()
        request = self._request(probe)
        try:
            return measured_speed(shop, self.task, self.source, probe, request, truth, name)
        except HarnessError as error:
            return f"the harness broke while it measured: {one_line(error)}"

    def _check_reference(self, first: Probe) -> None:
        """A reference that fails on its own inputs at the base shape is the task's fault."""
        error = self.truth(first).error
        if error:
            raise TaskError(f"task {self.task.id}: the reference fails on its own inputs: {error}")

    def truth(self, probe: Probe) -> Truth:
        """The truth of a probe at the precision that this candidate declares."""
        return self.grader.oracle().truth(self.task, probe.question, tf32=self.tf32)

    def observe(self, probes: Sequence[Probe]) -> Fault | None:
        """Ask the cell every probe in a random order; returns the fault if nothing loads."""
        order = list(probes)
        random.Random(self.grader.seed).shuffle(order)
        return self._call_each(order)

    def _call_each(self, probes: Iterable[Probe]) -> Fault | None:
        limit_s = self.grader.limits.verdict_seconds
        for step, probe in enumerate(probes):
            self.grader.report("probes", step, len(self.truths))
            if self._called_s > limit_s:
                self.observations[probe] = Observation(fault=_out_of_time(limit_s))
                continue
            if self._cell is None or not self._cell.alive:
                if len(self._losses) > RESTART_LIMIT:
                    self.observations[probe] = Observation(fault=_given_up(self._losses))
                    continue
                self._cell = self._open()
                if self._cell.fault is not None:
                    return self._cell.fault
            seen = self._attributed(probe, self._cell.call(self._request(probe)))
            self.observations[probe] = seen
            self._called_s += seen.time_us * 1e-6
            if seen.fault is not None and not self._cell.alive:
                self._losses.append(seen.fault)
        return None

    def _attributed(self, probe: Probe, seen: Observation) -> Observation:
        """The same, or a fault of ours where the virtual GPU's native code crashed by itself.

        A kernel cannot crash it except through an error in it. So a crash while a kernel ran is
        ours if it comes again in a fresh process, and does not with launches turned into no-ops.
        """
        if not _in_native_code(seen):
            return seen
        request = self._request(probe)
        again, muted = (self._fresh(replace(request, mute=mute)) for mute in (False, True))
        if not _in_native_code(again) or (muted.fault and muted.fault.kind in DEADLY):
            return seen
        message = f"the virtual GPU broke while a kernel ran: {seen.fault.message}"
        return replace(seen, fault=replace(seen.fault, kind="harness", message=message))

    def _fresh(self, request: CallRequest) -> Observation:
        with self.grader.workshop().open(self.source) as cell:
            return cell.call(request)

    def _configurations(self) -> Iterator[Probe]:
        """Calls for the autotune configurations that no call has judged.

        Begun once everything else has been asked: it depends on what was seen.
        """
        judged = (*values.plan(self.task), *gradients.plan(self.task))
        for probe in configurations.unjudged(
            self.task, self.grader.seed, judged, self.observations
        ):
            self.truths[probe] = self.truth(probe)
            if not self.truths[probe].error:
                yield probe

    def _open(self) -> Cell:
        self.close()
        with self._timed("load"):
            cell = self.grader.workshop().open(self.source)
        missing = cell.containment.not_enforced
        self.containment = f"without {'; '.join(missing)}" if missing else "complete"
        return cell

    def _is_out_of_reach(self, first: Probe) -> bool:
        """Whether the reference cannot take the half type in which it would be asked."""
        if self.task.working_dtype == "float32":
            return False
        with self._timed("oracle"):
            return bool(self.truth(first).error)

    def _ask_in_float32(self) -> None:
        self.task = replace(self.task, dtypes=("float32", *self.task.dtypes))
        self._requests = Requests(self.task, self.grader.call_seconds)

    def _plan(self) -> list[Probe]:
        probes = dict.fromkeys(battery.plan(self.task, self.grader.seed))
        trials = instantiate(self.task, kernelbench_rule.plan(self.task), self.grader.seed)
        probes.update(dict.fromkeys(trials))
        probes[muted_probe(self.task, self.grader.seed)] = None
        probes[self._timed_probe()] = None
        fits = self._native_fits()
        return [probe for probe in probes if probe.sizes or fits or not self.task.family.base]

    def _timed_probe(self) -> Probe:
        return timed_probe(self.task, self.grader.seed, native_fits=self._native_fits())

    def _native_fits(self) -> bool:
        source, origin = self.task.source, self.task.origin or self.task.id
        if input_elements(source, {}, origin) > NATIVE_BUDGET_ELEMENTS:
            return False
        return call_units(source, {}, origin) <= NATIVE_BUDGET_UNITS

    def _request(self, probe: Probe) -> CallRequest:
        return self._requests.of(probe, self.truths[probe])

    def _results(self) -> Results:
        vouched = self.grader.vouched
        return Results(
            task=self.task,
            truths=self.truths,
            observations=self.observations,
            seed=self.grader.seed,
            resources=() if vouched is None else vouched.resources,
        )

    def _compiled(self, results: Results) -> Results:
        """The results with what every launched kernel needs on every target."""
        launches, left_out = select(self.observations.values())
        if not launches:
            return results
        if not self.grader.targets:
            return replace(results, resources_note="no target was asked for")
        self.grader.report("compile", 0, len(launches))

        def compiled(kinds: Sequence[Launch]) -> tuple[KernelResources, ...]:
            workshop, targets = self.grader.workshop(), self.grader.targets
            return workshop.resources(self.source, kinds, targets)

        resources, note = compile_ahead(compiled, launches, left_out, len(self.grader.targets))
        resources = (*results.resources, *resources)
        return replace(results, resources=resources, resources_note=note)

    def _notes(self, speed: Speed | str) -> dict[str, str]:
        budget = f"{CONFIGURATION_LIMIT} and {self.grader.call_seconds / 2:g} seconds of compiling"
        notes = {
            "speed": speed if isinstance(speed, str) else "",
            "autotune": configurations.note(self.observations.values(), budget),
        }
        return {name: text for name, text in notes.items() if text}

    def _unjudged(self, fault: Fault) -> Verdict:
        where = f" (line {fault.line})" if fault.line is not None else ""
        kind = f"{fault.exception}: " if fault.exception and fault.kind == "exception" else ""
        text = f"{kind}{fault.message}{where}"
        return Verdict(
            task=self.task.to_json(),
            source=self.source,
            findings=tuple(failed(name, f"not judged: {text}") for name in battery.GATE_NAMES),
            fault=text,
            allclose=failed(kernelbench_rule.NAME, text),
            environment=self._environment(),
            time_s=self.time_s,
        )

    def _broken(self, reason: str) -> Verdict:
        verdict = broken(self.task, self.source, reason)
        return replace(verdict, environment=self._environment(), time_s=self.time_s)

    def _environment(self) -> dict[str, str]:
        return surroundings(self.grader, tf32=self.tf32, containment=self.containment)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.time_s[phase] = self.time_s.get(phase, 0.0) + time.perf_counter() - started


def broken(task: Task, source: str, reason: str) -> Verdict:
    """The verdict that there is none: the task is at fault, or the harness broke."""
    return Verdict(
        task=task.to_json(),
        source=source,
        findings=tuple(errored(name, reason) for name in battery.GATE_NAMES),
    )


def _in_native_code(seen: Observation) -> bool:
    fault = seen.fault
    return fault is not None and fault.kind == "signal" and fault.phase == "kernel"


def _given_up(losses: Sequence[Fault]) -> Fault:
    first = losses[0]
    message = f"{first.message}; not tried again after {len(losses)} lost processes"
    return replace(first, message=message, launches=0)


def _out_of_time(limit_s: float) -> Fault:
    message = f"not tried: the calls before had taken {limit_s:g} seconds together"
    return Fault(kind="timeout", phase="forward", message=message)
