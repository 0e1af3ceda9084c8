"""Constructing the candidate's model, and keeping it between calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..tasks.weights import noise_constants
from .protocol import DTYPES, decode
from .results import Owners
from .weights import copy_weights


@dataclass
class BuiltModel:
    """One instance of `ModelNew`, as the judge asked for it."""

    instance: Any
    weights_matched: bool
    _buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    previous_outputs: list[torch.Tensor] = field(default_factory=list)
    """Outputs of the last call, kept alive so that their reuse shows."""

    def __post_init__(self) -> None:
        self._buffers = {name: value.clone() for name, value in self._named("buffers")}

    def restore_buffers(self) -> None:
        """Undo what earlier calls did to buffers, such as running statistics."""
        current = dict(self._named("buffers"))
        with torch.no_grad():
            for name, value in self._buffers.items():
                target = current.get(name)
                if target is not None and target.shape == value.shape:
                    target.copy_(value)

    def parameters(self) -> dict[str, torch.Tensor]:
        """Parameters by name."""
        return dict(self._named("parameters"))

    def claim_memory(self, owners: Owners) -> None:
        """Tell whose memory parameters, buffers and the last outputs lie in."""
        for kind in ("parameters", "buffers"):
            for name, tensor in self._named(kind):
                owners.add(f"parameter {name}", tensor)
        for tensor in self.previous_outputs:
            owners.add("previous output", tensor)

    def _named(self, kind: str) -> Iterator[tuple[str, torch.Tensor]]:
        if isinstance(self.instance, torch.nn.Module):
            yield from getattr(torch.nn.Module, f"named_{kind}")(self.instance)


@dataclass(frozen=True)
class Construction:
    """What the judge said about a model, decoded in the cell."""

    init_inputs: tuple[Any, ...]
    init_keywords: Mapping[str, Any]
    seed: int
    dtype: torch.dtype
    noise_seed: int | None
    weights: Mapping[str, torch.Tensor]
    buffers: frozenset[str]
    by_shape: bool
    evaluation_mode: bool

    @classmethod
    def from_message(cls, message: Mapping[str, Any], tensors: list[torch.Tensor]) -> Construction:
        """Decode; `tensors` are the cell's own copies."""
        return cls(
            init_inputs=decode(message["init_inputs"], tensors),
            init_keywords=decode(message["init_keywords"], tensors),
            seed=message["seed"],
            dtype=DTYPES[message["dtype"]],
            noise_seed=message["noise_seed"],
            weights=decode(message["weights"], tensors),
            buffers=frozenset(message["buffers"]),
            by_shape=message["by_shape"],
            evaluation_mode=message["evaluation_mode"],
        )


def construct(
    plan: Construction, model_class: type, to_device: Callable[[torch.nn.Module], None]
) -> Any:
    """Call the constructor as KernelBench does, with the seed set just before."""
    torch.manual_seed(plan.seed)
    with torch.no_grad():
        instance = model_class(*plan.init_inputs, **plan.init_keywords)
    if isinstance(instance, torch.nn.Module):
        to_device(instance)
    return instance


def prepare(plan: Construction, instance: Any) -> BuiltModel:
    """Noise, weights, dtype and mode, in this order."""
    matched = not any(name not in plan.buffers for name in plan.weights)
    if isinstance(instance, torch.nn.Module):
        if plan.noise_seed is not None:
            noise_constants(_tensors_of(instance), plan.noise_seed)
        matched = copy_weights(instance, plan.weights, plan.buffers, by_shape=plan.by_shape)
        instance._apply(lambda t: t.to(plan.dtype) if t.is_floating_point() else t)
        if plan.evaluation_mode:
            instance.eval()
    return BuiltModel(instance, matched)


def _tensors_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()
