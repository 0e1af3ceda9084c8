"""Shape families of foreign references: size constants rebound until the inputs fit a budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch

from .domains import own_inputs
from .model import ShapeFamily, TaskError
from .reference import Reference, load_reference, size_constants

BASE_BUDGET_ELEMENTS = 1 << 16
"""Elements of all inputs together at the base member."""
LONG_BUDGET_ELEMENTS = 1 << 17
"""The same at the member with the longest reduction."""
ROW_BEYOND_BLOCK = 1031
"""A prime above 1,024, the widest block that row-wise kernels commonly take in one piece."""
LONG_ROW = 4096
"""Terms of the longest reduction: enough for a half total to stagnate."""
TILE_BEYOND_BLOCK = 131
"""A prime above 128, the usual side of a tile."""
ROW_COUNT = 8
"""What a size that only counts rows is lowered towards while others are lowered to a tile."""
SMALL_COUNT = 3
"""For the constants that only repeat the work."""
VARIATIONS = (1, 2, 17, 31, 33, 127, 129)
STEPS_LIMIT = 64
"""Attempts at one member before it is given up."""


@lru_cache(maxsize=1024)
def fitted_family(source: str, origin: str) -> ShapeFamily:
    """A family whose members the reference runs at, found by trial.

    Every module-level integer that changes the shape of an input is a size. Sizes are lowered,
    the one that costs most first, until the base fits the budget and the reference still runs;
    one of them stays beyond the usual block sizes.

    Raises:
        TaskError: the reference fails at every shape that fits this machine.
    """
    constants = size_constants(source, origin)
    sizes = _input_sizes(source, origin, constants)
    if not sizes:
        _check(source, {}, origin)
        return ShapeFamily()
    base = _shrink(source, origin, sizes)
    return ShapeFamily(
        base=base,
        vary={name: _variations(source, origin, base, name) for name in sizes},
        long=_long(source, origin, base, sizes),
    )


def input_elements(source: str, sizes: Mapping[str, int], origin: str) -> int:
    """Elements of all inputs together, without allocating them."""
    return sum(math.prod(shape) for shape in _shapes(load_reference(source, sizes, origin)))


def _shapes(reference: Reference) -> list[tuple[int, ...]]:
    with torch.device("meta"):
        inputs = own_inputs(reference, 0)
    return [tuple(value.shape) for value in inputs if isinstance(value, torch.Tensor)]


def _input_sizes(source: str, origin: str, constants: Mapping[str, int]) -> dict[str, int]:
    """The constants on which some input's shape depends."""
    native = _shapes(load_reference(source, {}, origin))
    found = {}
    for name, value in constants.items():
        if value < 1:
            continue
        try:
            changed = _shapes(load_reference(source, {name: value + 1}, origin))
        except TaskError:
            changed = None
        if changed != native:
            found[name] = value
    return found


def _shrink(source: str, origin: str, native: Mapping[str, int]) -> dict[str, int]:
    sizes = dict(native)
    floors = {name: _floor(source, origin, name, value) for name, value in native.items()}
    for _ in range(STEPS_LIMIT):
        if input_elements(source, sizes, origin) <= BASE_BUDGET_ELEMENTS:
            break
        smaller = _smaller(source, origin, sizes, floors)
        if smaller is None:
            break
        sizes = smaller
    for candidate in (_odd(sizes), sizes):
        if _runs(source, candidate, origin):
            return candidate
    _check(source, sizes, origin)
    return sizes


def _floor(source: str, origin: str, name: str, value: int) -> int:
    """How small a size should become: small for what only counts rows, a tile for the rest."""
    before = _shapes(load_reference(source, {}, origin))
    try:
        after = _shapes(load_reference(source, {name: value + 1}, origin))
    except TaskError:
        return TILE_BEYOND_BLOCK
    moved = {
        axis
        for one, two in zip(before, after, strict=False)
        for axis, (old, new) in enumerate(zip(one, two, strict=False))
        if old != new and len(one) > 1
    }
    return ROW_COUNT if moved == {0} else TILE_BEYOND_BLOCK


def _smaller(
    source: str, origin: str, sizes: Mapping[str, int], floors: Mapping[str, int]
) -> dict[str, int] | None:
    """The same sizes with the one halved that is farthest above its floor and still runs."""
    for name in sorted(sizes, key=lambda each: sizes[each] / floors[each], reverse=True):
        if sizes[name] < 2:
            continue
        trial = {**sizes, name: sizes[name] // 2}
        try:
            elements = input_elements(source, trial, origin)
        except TaskError:
            continue
        if elements > BASE_BUDGET_ELEMENTS or _runs(source, trial, origin):
            return trial
    return None


def _odd(sizes: Mapping[str, int]) -> dict[str, int]:
    """The largest size moved to a prime beyond a block, the smallest ones kept small."""
    largest = max(sizes, key=lambda name: sizes[name])
    value = sizes[largest]
    prime = ROW_BEYOND_BLOCK if value >= ROW_BEYOND_BLOCK // 2 else TILE_BEYOND_BLOCK
    return {**sizes, largest: prime} if value >= TILE_BEYOND_BLOCK // 2 else dict(sizes)


def _variations(source: str, origin: str, base: Mapping[str, int], name: str) -> tuple[int, ...]:
    wanted = {*VARIATIONS, base[name] - 1, base[name] + 1}
    return tuple(
        value
        for value in sorted(wanted)
        if 1 <= value <= max(2 * base[name], 33)
        and value != base[name]
        and _runs(source, {**base, name: value}, origin)
    )


def _long(
    source: str, origin: str, base: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[str, int]:
    """The base with its reduced size raised as far as the budget allows and the rest lowered."""
    reduced = _reduced(source, origin, base)
    for small in (SMALL_COUNT, None):
        member = {
            name: value if small is None else min(value, small) for name, value in base.items()
        }
        member[reduced] = base[reduced]
        limit = max(sizes[reduced], LONG_ROW)
        while member[reduced] < limit and _fits(source, origin, member, reduced):
            member[reduced] = member[reduced] * 2 + 1
        if _runs(source, member, origin):
            return member
    return dict(base)


def _fits(source: str, origin: str, member: Mapping[str, int], name: str) -> bool:
    longer = {**member, name: member[name] * 2 + 1}
    return longer[name] <= 2 * LONG_ROW and (
        input_elements(source, longer, origin) <= LONG_BUDGET_ELEMENTS
    )


def _reduced(source: str, origin: str, base: Mapping[str, int]) -> str:
    """The size that makes inputs longer but not outputs; failing that, the largest one."""
    before = _output_elements(source, base, origin)
    for name in sorted(base, key=lambda each: base[each], reverse=True):
        grown = {**base, name: base[name] + 1}
        try:
            more = input_elements(source, grown, origin) > input_elements(source, base, origin)
            if more and _output_elements(source, grown, origin) == before:
                return name
        except TaskError:
            continue
    return max(base, key=lambda each: base[each])


def _output_elements(source: str, sizes: Mapping[str, int], origin: str) -> int:
    output = _run(source, sizes, origin)
    leaves = torch.utils._pytree.tree_leaves(output)
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))


def _runs(source: str, sizes: Mapping[str, int], origin: str) -> bool:
    try:
        _check(source, sizes, origin)
    except TaskError:
        return False
    return True


def _check(source: str, sizes: Mapping[str, int], origin: str) -> None:
    _run(source, sizes, origin)


def _run(source: str, sizes: Mapping[str, int], origin: str) -> Any:
    reference = load_reference(source, sizes, origin)
    inputs = own_inputs(reference, 0)
    model = reference.build()
    try:
        with torch.no_grad():
            return model(*inputs)
    except Exception as error:
        shape = ", ".join(f"{name}={value}" for name, value in sizes.items()) or "its own shape"
        raise TaskError(f"{origin}: the reference fails at {shape}: {error}") from error
