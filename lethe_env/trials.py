"""Trials: KernelBench's rule to the letter, with the candidate in a cell.

What differs from KernelBench's own evaluation is only what lets a candidate reach its judge: it
runs in another process, so it can neither patch `torch.allclose`, nor read the reference's result
from a frame or from the heap, nor change what `get_inputs` of the reference draws; and it is
copied nothing but inputs, so the weights match by the order of random numbers alone, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from .cell import CallRequest, Cell, ModelRequest
from .gates import battery, kernelbench_rule, unsupported
from .gates.kernelbench_rule import Rule, Tally
from .gates.verdict import Finding, Status, Verdict, errored, failed, not_applicable
from .tasks.inputs import dtype_named
from .tasks.model import Task, TaskError
from .tasks.observation import Fault, Observation
from .tasks.reference import one_line, task_reference
from .tasks.shrinking import widest_member

if TYPE_CHECKING:
    from .grader import Grader

CPU_BUDGET_ELEMENTS = 1 << 20
"""Without a GPU, a shape is used whose inputs and outputs have at most so many elements."""


@dataclass(slots=True)
class Trials:
    """One candidate under one rule."""

    grader: Grader
    task: Task
    source: str
    rule: Rule
    _sizes: dict[str, int] = field(default_factory=dict)

    def verdict(self) -> Verdict:
        """A verdict in which only `allclose` was asked.

        Raises:
            TaskError: the reference cannot be built or draws no inputs.
            HarnessError: the harness broke.
        """
        self._sizes = self._member()
        fault = self.grader.refusal(self.source)
        if fault is not None:
            return self._verdict(failed(kernelbench_rule.NAME, fault.message), fault)
        with self.grader.workshop().open(self.source) as cell:
            if cell.fault is not None:
                return self._verdict(_fault_finding(cell.fault), cell.fault)
            return self._verdict(self._finding(cell))

    def _member(self) -> dict[str, int]:
        """The shape: the native one if it fits, see `widest_member`."""
        budget = CPU_BUDGET_ELEMENTS
        if self.grader.device_name == "cuda":
            budget = self.grader.limits.output_bytes // torch.float32.itemsize
        origin = self.task.origin or self.task.id
        return widest_member(self.task.source, origin, self.task.family.base, budget)

    def _finding(self, cell: Cell) -> Finding:
        tally = Tally(self.rule)
        device = "cuda" if self.grader.device_name == "cuda" else "cpu"
        model = ModelRequest(
            init_inputs=tuple(self._init_inputs()), seed=self.rule.seed, dtype=self.rule.precision
        )
        with torch.random.fork_rng(), torch.no_grad():
            reference = self._reference(model.init_inputs).to(
                device, dtype_named(self.rule.precision)
            )
            for number, seed in enumerate(self.rule.trial_seeds()):
                if tally.decided:
                    break
                inputs = self._inputs(seed)
                want = _expected(tally, reference, inputs, device)
                if tally.decided:
                    break
                seen = cell.call(
                    CallRequest(
                        model=model,
                        inputs=tuple(inputs),
                        rotation=number,
                        deadline_seconds=self.grader.call_seconds,
                    )
                )
                if seen.fault is not None and seen.fault.kind in unsupported.KINDS:
                    return errored(kernelbench_rule.NAME, seen.fault.message)
                _count(tally, want, seen)
        return tally.finding()

    def _init_inputs(self) -> list[Any]:
        torch.manual_seed(self.rule.seed)
        drawn = self._calling("get_init_inputs", self._defined().get_init_inputs)
        return [self._cast(value) for value in drawn]

    def _inputs(self, seed: int) -> list[Any]:
        torch.manual_seed(seed)
        drawn = self._calling("get_inputs", self._defined().get_inputs)
        torch.manual_seed(seed)
        return [self._cast(value) for value in drawn]

    def _reference(self, init_inputs: Sequence[Any]) -> torch.nn.Module:
        torch.manual_seed(self.rule.seed)
        model_class = self._defined().model_class
        return self._calling("Model", lambda: model_class(*init_inputs))

    def _defined(self) -> Any:
        return task_reference(self.task, self._sizes)

    def _cast(self, value: Any) -> Any:
        dtype = dtype_named(self.rule.precision)
        return value.to(dtype) if isinstance(value, torch.Tensor) else value

    def _calling(self, name: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except Exception as error:
            raise TaskError(f"task {self.task.id}: {name} fails: {one_line(error)}") from error

    def _verdict(self, finding: Finding, fault: Fault | None = None) -> Verdict:
        shape = ", ".join(f"{name}={value}" for name, value in self._sizes.items()) or "native"
        return Verdict(
            task=self.task.to_json(),
            source=self.source,
            findings=tuple(_unasked(name, finding) for name in battery.GATE_NAMES),
            fault="" if fault is None else finding.reason,
            allclose=finding,
            notes={"trials": f"KernelBench's rule at the shape {shape}"},
            environment={"device": self.grader.device_name, "torch": torch.__version__},
        )


def _unasked(gate: str, finding: Finding) -> Finding:
    """What a gate says if only the rule was asked: nothing, or that the harness broke."""
    if finding.status is Status.ERROR:
        return errored(gate, finding.reason)
    return not_applicable(gate, "only KernelBench's rule was asked")


def _expected(tally: Tally, reference: torch.nn.Module, inputs: list[Any], device: str) -> Any:
    """What the reference returns; KernelBench does not guard this call, its caller does."""
    moved = [v.to(device) if isinstance(v, torch.Tensor) else v for v in inputs]
    try:
        result = reference(*moved)
    except Exception as error:  # noqa: BLE001 - whatever the reference raises is the result
        tally.error = f"{kernelbench_rule.error_name(error)}: {error}"
        return None
    inputs[:] = [v.cpu() if isinstance(v, torch.Tensor) else v for v in moved]
    return result.cpu() if isinstance(result, torch.Tensor) else result


def _count(tally: Tally, want: Any, seen: Observation) -> None:
    if seen.fault is not None:
        tally.error = f"{seen.fault.exception or seen.fault.kind}: {seen.fault.message}"
        return
    single = len(seen.outputs) == 1 and seen.outputs[0].path == "output"
    if single and seen.outputs[0].device != "device":
        tally.error = "builtins.RuntimeError: the output was moved to another device"
        return
    tally.compare(
        want, seen.outputs[0].data if single else tuple(tensor.data for tensor in seen.outputs)
    )


def _fault_finding(fault: Fault) -> Finding:
    if fault.kind in unsupported.KINDS:
        return errored(kernelbench_rule.NAME, fault.message)
    kind = f"{fault.exception}: " if fault.exception else ""
    return failed(kernelbench_rule.NAME, f"{kind}{fault.message}")
