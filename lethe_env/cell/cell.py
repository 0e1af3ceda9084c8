"""The judge's handle on one untrusted process."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

import torch

from ..tasks.observation import Fault, Observation
from . import faults, replies
from .arena import InputArena, OutputArena
from .conversation import Conversation, LostError
from .protocol import HarnessError, encode
from .requests import CallRequest, Limits, ModelRequest

_FOLDERS = re.compile(r"/(?:[^\s/:]+/)+")


class Clerk(Protocol):
    """Answers what a cell asks the judge: see `translation.Clerk`."""

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one question."""

    def take_denial(self) -> tuple[str, str] | None:
        """Kind of fault and reason of the last question that was not met, told once."""


class Cell:
    """One process with one candidate in it. Whatever the candidate does ends in a `Fault`."""

    def __init__(
        self,
        conversation: Conversation,
        inputs: InputArena,
        outputs: OutputArena,
        limits: Limits,
        clerk: Clerk | None = None,
    ) -> None:
        """Take over a freshly forked process.

        Args:
            conversation: the channel to it.
            inputs: memory the judge writes to.
            outputs: memory the judge reads from.
            limits: what it may use.
            clerk: whom it may ask meanwhile; by default nobody.
        """
        self.fault: Fault | None = None
        """Why the source could not be loaded, or how the process died."""
        self.containment = conversation.containment
        self._conversation = conversation
        self._inputs = inputs
        self._outputs = outputs
        self._limits = limits
        self._clerk = clerk
        self._models: dict[str, tuple[Fault | None, bool]] = {}

    @property
    def alive(self) -> bool:
        """Whether the process is still there to be asked."""
        return self._conversation.open

    @property
    def answering_seconds(self) -> float:
        """Time spent so far on what the process asked: translating its kernels."""
        return self._conversation.answering_seconds

    def __enter__(self) -> Cell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self, source: str) -> None:
        """Have the source loaded; `fault` says if that failed."""
        reply = self._ask({"op": "load", "source": source}, self._limits.load_seconds)
        self.fault = reply if isinstance(reply, Fault) else replies.fault_of(reply)

    def call(self, request: CallRequest) -> Observation:
        """Make one call, constructing the model first if it is a new one.

        Never raises for anything the candidate does.

        Raises:
            HarnessError: the request cannot be sent, or the harness broke.
        """
        if self.fault is not None:
            return Observation(fault=self.fault)
        fault, matched = self._model(request.model)
        if fault is not None or (request.model.replace and not matched):
            return Observation(fault=fault, weights_matched=matched)
        tensors: list[torch.Tensor] = []
        arguments = encode(tuple(request.inputs), tensors)
        count = len(tensors)
        cotangents = None
        if request.cotangents is not None:
            seeds: list[torch.Tensor] = []
            cotangents = encode(list(request.cotangents), seeds)
            tensors += seeds
        spares = []
        for spare in request.spares:
            own: list[torch.Tensor] = []
            spares.append({"inputs": encode(tuple(spare), own), "first": len(tensors)})
            tensors += own
        wires = self._inputs.place([tensor.detach() for tensor in tensors])
        message = {
            "op": "call",
            "key": request.model.digest,
            "inputs": arguments,
            "input_tensors": count,
            "tensors": [wire.to_json() for wire in wires],
            "requires_grad": list(request.requires_grad),
            "cotangents": cotangents,
            "rotation": request.rotation,
            "mute": request.mute,
            "timed": request.timed,
            "calls": request.calls,
            "spares": spares,
            "tuning_seconds": request.tuning_seconds,
            "schedule": request.schedule,
        }
        started = time.perf_counter() - self._conversation.answering_seconds
        reply = self._ask(message, request.deadline_seconds)
        ended = time.perf_counter() - self._conversation.answering_seconds
        time_us = (ended - started) * 1e6
        if isinstance(reply, Fault):
            return Observation(fault=reply, weights_matched=matched, time_us=time_us)
        return replies.observation_of(
            reply,
            self._outputs.read,
            self._limits.output_bytes,
            weights_matched=matched,
            inputs_changed=tuple(i for i in self._inputs.changed() if i < count),
            guards_broken=tuple(i for i in self._inputs.guards_broken() if i < count),
            time_us=time_us,
        )

    def close(self) -> None:
        """Kill the process and release its memory."""
        if self.alive:
            with suppress(HarnessError):  # if the server is gone, the process went with it
                self._conversation.close()
            self._release()

    def _model(self, model: ModelRequest) -> tuple[Fault | None, bool]:
        if model.digest not in self._models:
            tensors: list[torch.Tensor] = []
            header = model.header(tensors)
            wires = self._inputs.place([tensor.detach() for tensor in tensors])
            message = {
                "op": "model",
                "key": model.digest,
                "model": header,
                "tensors": [wire.to_json() for wire in wires],
            }
            reply = self._ask(message, self._limits.load_seconds)
            if isinstance(reply, Fault):
                return reply, False
            fault = replies.fault_of(reply)
            self._models[model.digest] = (fault, reply.get("weights_matched") is True)
        return self._models[model.digest]

    def _ask(self, message: Mapping[str, Any], seconds: float) -> dict[str, Any] | Fault:
        """Send a request and wait for its answer; a fault means the process is gone."""
        try:
            answer = self._clerk.answer if self._clerk is not None else None
            return self._corrected(self._conversation.ask(message, seconds, answer))
        except HarnessError:
            self._release()
            raise
        except LostError as lost:
            phase, launches = self._outputs.status()
            self._release()
            if lost.kind == "ended":
                self.fault = replies.from_exit(lost.status, phase, launches)
            else:
                self.fault = Fault(
                    kind=lost.kind, phase=phase, message=lost.reason, launches=launches
                )
            return self.fault

    def _corrected(self, reply: dict[str, Any]) -> dict[str, Any]:
        """A fault that the judge's own denial caused, in the judge's own words."""
        denial = self._clerk.take_denial() if self._clerk is not None else None
        if denial is None or not isinstance(reply.get("fault"), dict):
            return reply
        kind, reason = denial
        message = _FOLDERS.sub("", reason)[: faults.MESSAGE_CHARACTERS]
        return {**reply, "fault": {**reply["fault"], "kind": kind, "message": message}}

    def _release(self) -> None:
        self._inputs.close()
        self._outputs.close()
