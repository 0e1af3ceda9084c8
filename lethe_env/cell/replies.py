"""Reading a cell's answer without trusting it."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..tasks.observation import (
    PHASES,
    SANITIZER_KINDS,
    Compiled,
    Fault,
    Launch,
    Observation,
    OutputTensor,
    SanitizerFinding,
    Tuning,
)
from ..tasks.work import CallWork
from . import work as calls
from .arena import STATUS_BYTES
from .protocol import DTYPES

_KINDS = ("refused", "exception", "memory", "exit", "protocol", "unsupported", "harness")
_DIMENSIONS = 32
_CHARACTERS = 1000
Read = Callable[[int, int], torch.Tensor]


class MalformedError(Exception):
    """The answer does not say what an answer has to say."""


def fault_of(reply: Mapping[str, Any]) -> Fault | None:
    """The fault an answer reports, if it does."""
    if "fault" not in reply:
        return None
    try:
        return _fault(reply["fault"])
    except (MalformedError, KeyError, TypeError, ValueError) as error:
        return _malformed(error)


def from_exit(status: int, phase: str, launches: int = 0) -> Fault:
    """The fault of a process that ended before it answered.

    Args:
        status: as `os.waitstatus_to_exitcode` gives it, negative for a signal.
        phase: what was being done.
        launches: kernel launches of this call so far.
    """
    if status == -signal.SIGXCPU:
        kind, message = "timeout", "the processor time of the cell was used up"
    elif status < 0:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
        kind, message = "signal", f"the process was ended by {name} (memory misuse?)"
        if -status == signal.SIGKILL:
            message = "the process was killed from outside (out of memory?)"
    else:
        kind, message = "exit", f"the process ended itself with exit code {status}"
    return Fault(kind=kind, phase=phase, message=message, launches=launches)


def observation_of(
    reply: Mapping[str, Any],
    read: Read,
    limit_bytes: int,
    *,
    weights_matched: bool,
    inputs_changed: tuple[int, ...],
    guards_broken: tuple[int, ...],
    time_us: float,
) -> Observation:
    """The observation an answer amounts to.

    Args:
        reply: the answer, as JSON gave it.
        read: bytes of the output memory at a position, of a size.
        limit_bytes: most bytes of all outputs and gradients together.
        weights_matched: passed on.
        inputs_changed: passed on.
        guards_broken: passed on.
        time_us: passed on.
    """
    outputs: tuple[OutputTensor, ...] = ()
    gradients: tuple[OutputTensor, ...] = ()
    missing: tuple[str, ...] = ()
    launches: tuple[Launch, ...] = ()
    sanitizer: tuple[SanitizerFinding, ...] = ()
    work: CallWork | None = None
    tunings: tuple[Tuning, ...] = ()
    fault = fault_of(reply)
    try:
        sanitizer = tuple(_finding(item) for item in _list(reply.get("sanitizer", [])))
        tunings = tuple(_tuning(item) for item in _list(reply.get("tunings", [])))
        if fault is None:
            budget = _Budget(limit_bytes)
            outputs = tuple(_tensor(item, read, budget) for item in _list(reply["outputs"]))
            found = _list(reply.get("gradients", []))
            gradients = tuple(_tensor(item, read, budget) for item in found)
            missing = tuple(_text(p) for p in _list(reply.get("missing_gradients", [])))
            launches = tuple(_launch(item) for item in _list(reply["launches"]))
            work = calls.read(reply["work"], _text) if reply.get("work") is not None else None
    except (MalformedError, KeyError, TypeError, ValueError, OverflowError) as error:
        fault, outputs, gradients, missing = fault or _malformed(error), (), (), ()
    return Observation(
        outputs=outputs,
        gradients=gradients,
        missing_gradients=missing,
        inputs_changed=inputs_changed,
        guards_broken=guards_broken,
        weights_matched=weights_matched,
        launches=launches,
        sanitizer=sanitizer,
        tunings=tunings,
        work=work,
        fault=fault,
        time_us=time_us,
    )


class _Budget:
    """Bytes left, so that overlapping outputs cannot add up to more than the limit."""

    def __init__(self, limit_bytes: int) -> None:
        self._left = limit_bytes
        self._end = STATUS_BYTES + limit_bytes

    def take(self, position: Any, size_bytes: int) -> None:
        if type(position) is not int or not STATUS_BYTES <= position <= self._end - size_bytes:
            raise MalformedError("an impossible position")
        self._left -= size_bytes
        if self._left < 0:
            raise MalformedError("more output bytes than the limit")


def _tensor(item: Any, read: Read, budget: _Budget) -> OutputTensor:
    dtype = DTYPES[_text(item["dtype"])]
    shape, stride = _integers(item["shape"]), _integers(item["stride"])
    if len(stride) != len(shape) or any(size < 0 for size in shape):
        raise MalformedError("shape and strides do not fit")
    size_bytes = math.prod(shape) * dtype.itemsize
    budget.take(item["position"], size_bytes)
    side, owner = item["device"], item["owner"]
    if side not in ("device", "host"):
        raise MalformedError("an unknown device")
    content = read(item["position"], size_bytes)
    if dtype == torch.bool:
        content = content.ne(0).to(torch.uint8)
    return OutputTensor(
        path=_text(item["path"]),
        data=content.view(dtype).reshape(shape),
        stride=stride,
        device=side,
        shares_storage_with=None if owner is None else _text(owner),
    )


def _launch(item: Any) -> Launch:
    arguments, options, tuned = item["arguments"], item["options"], item["tuned"]
    if not isinstance(arguments, dict) or not isinstance(options, dict):
        raise MalformedError("a launch without arguments")
    return Launch(
        kernel=_text(item["kernel"]),
        arguments={_text(name): dict(value) for name, value in arguments.items()},
        options={_text(name): int(value) for name, value in options.items()},
        grid=_integers(item["grid"]),
        tuned=None if tuned is None else tuple(map(_text, _list(tuned))),
        compiled=_compiled(item["compiled"]) if "compiled" in item else None,
    )


def _compiled(item: Any) -> Compiled:
    figures = {name: item[name] for name in ("shared_bytes", "tensor_memory_columns", "threads")}
    if any(type(number) is not int or number < 0 for number in figures.values()):
        raise MalformedError("an impossible size of a kernel")
    return Compiled(ptx=_text(item["ptx"]), **figures)


def _finding(item: Any) -> SanitizerFinding:
    if item["kind"] not in SANITIZER_KINDS:
        raise MalformedError("an unknown kind of finding")
    line = item["line"]
    return SanitizerFinding(
        kind=item["kind"],
        kernel=_text(item["kernel"]),
        opcode=_text(item["opcode"]),
        line=None if line is None else int(line),
        lanes=int(item["lanes"]),
        detail=_text(item["detail"]),
    )


def _tuning(item: Any) -> Tuning:
    numbers = {name: item[name] for name in ("index", "fitting", "unfit", "left_out_count")}
    if any(type(number) is not int or number < 0 for number in numbers.values()):
        raise MalformedError("an impossible number of configurations")
    return Tuning(
        kernel=_text(item["kernel"]),
        chosen=_text(item["chosen"]),
        left_out=tuple(_text(words) for words in _list(item["left_out"])),
        **numbers,
    )


def _fault(item: Any) -> Fault:
    if item["kind"] not in _KINDS or item["phase"] not in PHASES:
        raise MalformedError("an unknown kind of fault")
    line = item["line"]
    return Fault(
        kind=item["kind"],
        phase=item["phase"],
        message=_text(item["message"]),
        exception=_text(item["exception"]),
        line=None if line is None else int(line),
        launches=int(item["launches"]),
    )


def _malformed(error: Exception) -> Fault:
    what = str(error) if isinstance(error, MalformedError) else f"{type(error).__name__} {error}"
    message = f"the cell's answer was malformed: {what}"[:_CHARACTERS]
    return Fault(kind="protocol", phase="protocol", message=message)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedError("not a list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _CHARACTERS:
        raise MalformedError("not a short text")
    return value


def _integers(value: Any) -> tuple[int, ...]:
    if len(_list(value)) > _DIMENSIONS or any(type(item) is not int for item in value):
        raise MalformedError("not a list of integers")
    return tuple(value)
