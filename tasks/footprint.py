"""Footprint: how much memory a reference takes at the shape written in its source."""

from __future__ import annotations

import os
from typing import Any

import torch

from .domains import own_inputs
from .reference import load_reference


def native_bytes(source: str, origin: str) -> int | None:
    """Bytes of inputs, parameters, buffers and outputs, without allocating them.

    Returns:
        `None` of a reference that looks at values, and so does not run without them.

    Raises:
        TaskError: the source defines no reference.
    """
    reference = load_reference(source, {}, origin)
    try:
        with torch.device("meta"), torch.no_grad():
            inputs = own_inputs(reference, 0)
            module = reference.build()
            outputs = module(*inputs)
    except Exception:  # noqa: BLE001 - whatever it raises, nothing is known
        return None
    state = [*module.parameters(), *module.buffers()]
    return _bytes(inputs) + _bytes(state) + _bytes(outputs)


def machine_bytes() -> int:
    """Physical memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _bytes(tree: Any) -> int:
    leaves = torch.utils._pytree.tree_leaves(tree)
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))
