"""The cell's own side of the conversation: load, construct, call, reply."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.autograd.graph import _engine_run_backward

from ..tasks.observation import Fault
from ..vgpu.operations import OperationLog
from . import faults, loader
from .arena import CellMemory
from .autotune import Rotation
from .conversation import Answer, serve
from .device import Device
from .launches import LaunchLog
from .launches import install as install_launch_log
from .model import BuiltModel, Construction, construct, prepare
from .protocol import WireTensor, decode, dtype_name
from .results import Leaf, Owners, UnacceptableError, flatten
from .work import describe as describe_work


class Agent:
    """Serves one candidate until the judge closes the channel."""

    def __init__(
        self, channel: socket.socket, memory: CellMemory, device: Device, folder: Path
    ) -> None:
        self._channel = channel
        self._memory = memory
        self._device = device
        self._folder = folder
        self._phase = "load"
        self._log = LaunchLog(lambda count: memory.note(self._phase, count))
        self._rotation = Rotation(
            self._log,
            own_clock=device.own_clock,
            side_by_side=device.side_by_side,
            target=device.target,
        )
        self._module: ModuleType | None = None
        self._path = str(folder)
        self._models: dict[str, BuiltModel] = {}

    def serve(self) -> None:
        """Answer requests one after the other."""
        install_launch_log(self._log, self._device.can_reach)
        self._device.watch(self._note_kernel)
        self._rotation.install()
        work = {"load": self._load, "model": self._build, "call": self._call}
        serve(self._channel, {name: partial(self._answer, do) for name, do in work.items()})

    def _answer(self, work: Answer, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return work(request)
        except UnacceptableError as error:
            fault = Fault(kind="protocol", phase=self._phase, message=str(error))
        except loader.NoModelError as error:
            fault = Fault(kind="refused", phase="load", message=str(error))
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt too
            fault = faults.from_exception(error, self._phase, self._path, self._log.count)
            excuse = self._device.excuse(error)
            if excuse is not None:
                kind, reason = excuse
                message = reason.replace(f"{self._folder}/", "")[: faults.MESSAGE_CHARACTERS]
                fault = replace(fault, kind=kind, message=message)
        return {
            "sanitizer": [self._finding(found) for found in self._device.findings()],
            "tunings": self._rotation.tunings,
            "fault": {
                "kind": fault.kind,
                "phase": fault.phase,
                "message": fault.message,
                "exception": fault.exception,
                "line": fault.line,
                "launches": self._log.count,
            },
        }

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self._memory.note(phase, self._log.count)

    def _note_kernel(self, running: bool) -> None:
        self._memory.note("kernel" if running else self._phase, self._log.count)

    def _load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._enter("load")
        path = loader.write_source(request["source"], self._folder)
        self._path = str(path)
        with self._device.active():
            self._module = loader.load(path)
        loader.model_class(self._module)
        return {}

    def _build(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._enter("construct")
        self._log.start(mute=False)
        wires = [WireTensor.from_json(item) for item in request["tensors"]]
        tensors = [self._device.keep(self._memory.tensor(wire)) for wire in wires]
        plan = Construction.from_message(request["model"], tensors)
        with self._device.active():
            model_class = loader.model_class(self._module)
            instance = construct(plan, model_class, self._device.adopt)
        self._enter("weights")
        built = prepare(plan, instance)
        self._models[request["key"]] = built
        return {"weights_matched": built.weights_matched}

    def _call(self, request: Mapping[str, Any]) -> dict[str, Any]:
        model = self._models[request["key"]]
        self._enter("forward")
        self._log.start(mute=request["mute"])
        self._device.begin(request["schedule"])
        counted = request["timed"] and self._device.launches() is not None
        log = OperationLog() if counted else None
        self._log.quiet = request["calls"] > 1
        self._rotation.begin(
            request["rotation"],
            seconds=request["tuning_seconds"],
            timed=request["timed"],
            launches=self._device.launches(),
            unnoted=log.paused if log is not None else nullcontext,
        )
        self._memory.restart()
        model.restore_buffers()
        wires = [WireTensor.from_json(item) for item in request["tensors"]]
        views = self._device.receive(self._memory, wires)
        cotangents = request["cotangents"]
        inputs, seeds = views[: request["input_tensors"]], views[request["input_tensors"] :]
        for tensor, wanted in zip(inputs, request["requires_grad"], strict=False):
            tensor.requires_grad_(wanted)
        rotated = [decode(request["inputs"], inputs)]
        rotated += [decode(spare["inputs"], views[spare["first"] :]) for spare in request["spares"]]
        with (
            nullcontext() if cotangents is not None else torch.no_grad(),
            log or nullcontext(),
            self._device.active(),
        ):
            for turn in reversed(range(request["calls"])):
                result = model.instance(*rotated[turn % len(rotated)])
        leaves = flatten(result)
        reply: dict[str, Any] = {}
        if cotangents is not None:
            self._enter("backward")
            given = decode(cotangents, seeds)
            reply = self._gradients(model, leaves, inputs, request["requires_grad"], given)
        launches = self._device.launches()
        if log is not None and launches is not None:
            reply["work"] = describe_work(launches, log.operations)
        self._device.finish(self._memory)
        owners = Owners()
        for index, tensor in enumerate(inputs):
            owners.add(f"input[{index}]", tensor)
        model.claim_memory(owners)
        reply["outputs"] = [self._describe(leaf, owners.of(leaf.tensor)) for leaf in leaves]
        model.previous_outputs = [leaf.tensor.detach() for leaf in leaves]
        reply["sanitizer"] = [self._finding(found) for found in self._device.findings()]
        reply["tunings"] = self._rotation.tunings
        return {**reply, "launches": self._log.records, "launch_count": self._log.count}

    def _finding(self, found: Any) -> dict[str, Any]:
        own = found.file == self._path
        where = "" if own or not found.line else f" ({Path(found.file).name}:{found.line})"
        return {
            "kind": found.kind,
            "kernel": found.kernel,
            "opcode": found.opcode,
            "line": found.line if own and found.line else None,
            "lanes": found.lanes,
            "detail": found.detail + where,
        }

    def _gradients(
        self,
        model: BuiltModel,
        leaves: list[Leaf],
        inputs: list[torch.Tensor],
        requires_grad: list[bool],
        cotangents: list[torch.Tensor | None],
    ) -> dict[str, Any]:
        if len(cotangents) != len(leaves):
            raise UnacceptableError(
                f"{len(leaves)} tensors were returned where the reference returns {len(cotangents)}"
            )
        targets = {
            f"grad input[{index}]": tensor
            for index, (tensor, wanted) in enumerate(zip(inputs, requires_grad, strict=False))
            if wanted
        }
        for name, parameter in model.parameters().items():
            if parameter.requires_grad:
                targets[f"grad {name}"] = parameter
        pairs = [
            (leaf.tensor, cotangent)
            for leaf, cotangent in zip(leaves, cotangents, strict=True)
            if cotangent is not None and leaf.tensor.requires_grad
        ]
        found: tuple[torch.Tensor | None, ...] = (None,) * len(targets)
        if pairs and targets:
            for tensor, cotangent in pairs:
                if tensor.shape != cotangent.shape:
                    raise UnacceptableError(
                        f"an output of shape {tuple(tensor.shape)} came back where the reference "
                        f"returns {tuple(cotangent.shape)}"
                    )
            with self._device.active():  # torch.autograd.grad would switch the device off
                found = _engine_run_backward(
                    tuple(tensor for tensor, _ in pairs),
                    tuple(cotangent for _, cotangent in pairs),
                    False,
                    False,
                    tuple(targets.values()),
                    allow_unreachable=True,
                    accumulate_grad=False,
                )
        gradients = [
            self._describe(Leaf(path, gradient), None)
            for path, gradient in zip(targets, found, strict=True)
            if gradient is not None
        ]
        missing = [p for p, gradient in zip(targets, found, strict=True) if gradient is None]
        return {"gradients": gradients, "missing_gradients": missing}

    def _describe(self, leaf: Leaf, owner: str | None) -> dict[str, Any]:
        tensor = leaf.tensor.detach()
        position = self._memory.write(tensor)
        if position is None:
            raise UnacceptableError("the outputs exceed the limit of bytes for one call")
        return {
            "path": leaf.path,
            "dtype": dtype_name(tensor.dtype),
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
            "position": position,
            "device": self._device.side(leaf.tensor),
            "owner": owner,
        }
