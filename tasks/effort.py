"""Effort: what one call of a reference costs here, counted without computing anything.

The unit is one number written by one operation, which the rounding model, at some twenty runs a
call, takes about half a microsecond for. Everything else is measured against that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from .domains import own_inputs
from .reference import load_reference

OPERATION_UNITS = 4096
"""Of an operation, however small: a tenth of a millisecond in the dispatcher, each time."""
PRODUCTS_PER_UNIT = 64
"""Multiplications with an addition that take as long as one unit."""
PARAMETERS_PER_UNIT = 16
"""Parameters that are drawn, cast and copied in that time."""

_SOFTMAX = ("_softmax", "_safe_softmax")
_FUSED_ATTENTION = "_scaled_dot_product"

Shapes = list[tuple[int, ...]]


class MetaRun(NamedTuple):
    """What is known of one call of a reference from its shapes alone."""

    output_shapes: Shapes
    units: int
    """Effort of the call."""
    attends: bool
    """Whether a softmax stands between two matrix products, as in attention."""


def meta_run(source: str, sizes: Mapping[str, int], origin: str) -> MetaRun | None:
    """Call the reference at one member of its family on tensors without values.

    Returns:
        `None` of a reference that looks at values: it does not run without them.
    """
    return _remembered_run(source, tuple(sorted(sizes.items())), origin)


def call_units(source: str, sizes: Mapping[str, int], origin: str) -> int:
    """Effort of one call; 0 if that cannot be told."""
    run = meta_run(source, sizes, origin)
    return 0 if run is None else run.units


def output_elements(source: str, sizes: Mapping[str, int], origin: str) -> int | None:
    """Elements of all outputs together, without computing them; `None` if that cannot be told."""
    run = meta_run(source, sizes, origin)
    return None if run is None else sum(map(math.prod, run.output_shapes))


def attends(source: str, origin: str) -> bool:
    """Whether the reference is known to attend, see `MetaRun`."""
    run = meta_run(source, {}, origin)
    return run is not None and run.attends


@lru_cache(maxsize=512)
def _remembered_run(source: str, sizes: tuple[tuple[str, int], ...], origin: str) -> MetaRun | None:
    reference = load_reference(source, dict(sizes), origin)
    count = _Count()
    try:
        with torch.device("meta"), torch.no_grad():
            module, inputs = reference.build(), own_inputs(reference, 0)
            with count:
                output = module(*inputs)
    except Exception:  # noqa: BLE001 - whatever it raises, the shapes are unknown
        return None
    parameters = sum(parameter.numel() for parameter in module.parameters())
    units = count.units + parameters // PARAMETERS_PER_UNIT
    return MetaRun(_leaf_shapes(output), units, count.attends)


class _Count(TorchDispatchMode):
    """Adds up the effort of every operation but views, and looks for attention."""

    def __init__(self) -> None:
        super().__init__()
        self.units = 0
        self.attends = False
        self._after_product = self._after_softmax = False

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.is_view:
            return out
        name = func.overloadpacket.__name__
        products = _products(name, args, out)
        self.units += OPERATION_UNITS + sum(leaf.numel() for leaf in _leaves(out))
        self.units += products // PRODUCTS_PER_UNIT
        fused = name.startswith(_FUSED_ATTENTION)
        self.attends |= fused or (bool(products) and self._after_softmax)
        self._after_softmax |= name in _SOFTMAX and self._after_product
        self._after_product |= bool(products)
        return out


def _products(name: str, args: Sequence[Any], out: Any) -> int:
    """Multiplications with an addition, of matrix products, convolutions and fused attention."""
    match name:
        case "mm" | "bmm" | "mv" | "dot":
            return int(out.numel() * args[0].shape[-1])
        case "addmm" | "baddbmm" | "addmv":
            return int(out.numel() * args[1].shape[-1])
        case "convolution":
            met = args[0] if args[6] else out  # a transposed one goes through its input
            return int(met.numel() * args[1][0].numel())
    if name.startswith(_FUSED_ATTENTION):
        query, key, value = args[:3]
        return int(query.numel() * key.shape[-2] + query.shape[-2] * value.numel())
    return 0


def _leaves(output: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(output)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _leaf_shapes(output: Any) -> Shapes:
    return [tuple(leaf.shape) for leaf in _leaves(output)]
