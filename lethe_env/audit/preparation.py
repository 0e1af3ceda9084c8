"""What a foreign reference has to offer, found out in a process that it may take down with it.

Run as `python -m lethe_env.audit.preparation <parent> <descriptor>` with one end of a Unix socket
pair. It answers one message `{"reference": …}` after the other.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..cell import linux
from ..cell.protocol import ClosedError, receive, send
from ..tasks.domains import own_inputs
from ..tasks.effort import call_units
from ..tasks.kernelbench_folder import foreign_task
from ..tasks.model import Task, TaskError
from ..tasks.reference import Reference, load_reference, one_line
from .classification import Trace, op_class_of
from .row import digest

EFFORT_LIMIT_UNITS = 1 << 21
"""Effort of one call at the base shape beyond which a reference is too large to be judged against:
each of some seventy truths would take a second and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A reference as a task, or why it cannot be one."""

    task: Task | None = None
    op_class: str = "other"
    native_shapes: tuple[tuple[int, ...], ...] = ()
    problem: str = ""
    """Why no candidate can be judged against it; empty if one can."""

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "task": None if self.task is None else self.task.to_json(),
            "op_class": self.op_class,
            "native_shapes": [list(shape) for shape in self.native_shapes],
            "problem": self.problem,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Prepared:
        """Rebuild from `to_json`."""
        task = data["task"]
        return cls(
            task=None if task is None else Task.from_json(task),
            op_class=data["op_class"],
            native_shapes=tuple(tuple(shape) for shape in data["native_shapes"]),
            problem=data["problem"],
        )


def prepare(source: str) -> Prepared:
    """Fit a shape family, classify, and look at the inputs; never raises.

    Args:
        source: text of the reference, KernelBench's convention.
    """
    origin = f"reference {digest(source)}"
    try:
        task = foreign_task(f"reference/{digest(source)}", source, level=None, origin=origin)
        reference = load_reference(source, task.family.base, origin)
        inputs = own_inputs(reference, 0)
        if not any(isinstance(v, torch.Tensor) and v.is_floating_point() for v in inputs):
            return Prepared(problem="the reference takes no floating-point tensor to perturb")
        units = call_units(source, task.family.base, origin)
        if units > EFFORT_LIMIT_UNITS:
            problem = (
                f"the reference is too large: {units:,} units of effort a call at its smallest"
            )
            return Prepared(problem=f"{problem}, the limit is {EFFORT_LIMIT_UNITS:,}")
        return Prepared(
            task=task,
            op_class=_op_class(reference, inputs),
            native_shapes=_native_shapes(source, origin),
        )
    except TaskError as error:
        return Prepared(problem=f"the reference does not run: {error}")
    except Exception as error:  # noqa: BLE001 - a foreign module may raise anything
        return Prepared(problem=f"the reference does not run: {one_line(error)}")


def _op_class(reference: Reference, inputs: list[Any]) -> str:
    module = reference.build()
    trace = Trace(module)
    with torch.no_grad(), trace:
        module(*inputs)
    return op_class_of(trace.operations)


def _native_shapes(source: str, origin: str) -> tuple[tuple[int, ...], ...]:
    with torch.device("meta"):
        inputs = own_inputs(load_reference(source, {}, origin), 0)
    return tuple(tuple(value.shape) for value in inputs if isinstance(value, torch.Tensor))


def main() -> None:
    """Entry point."""
    parent, descriptor = (int(argument) for argument in sys.argv[1:3])
    linux.die_with(parent)
    os.dup2(2, 1)  # a reference may print, and results are not on standard output
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    while True:
        try:
            send(channel, prepare(receive(channel)["reference"]).to_json())
        except ClosedError:
            return


if __name__ == "__main__":
    main()
