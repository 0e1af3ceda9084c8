"""Shape families of foreign references: size constants rebound until the inputs fit a budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch

from .domains import own_inputs
from .effort import Shapes, attends, call_units, meta_run, output_elements
from .model import ShapeFamily, TaskError
from .reference import Reference, load_reference, size_constants

BASE_BUDGET_ELEMENTS = 1 << 16
"""Elements of all inputs together at the base member."""
OUTPUT_BUDGET_ELEMENTS = 1 << 17
"""Elements of all outputs there: a product of two thin matrices is a large one."""
BASE_BUDGET_UNITS = 1 << 18
"""Effort of one call there, see `effort`."""
LONG_BUDGET_ELEMENTS = 1 << 17
"""Elements of all inputs at the member with the longest reduction."""
LONG_BUDGET_UNITS = 5 << 18
"""Effort of one call there. Kernels commonly take another path beyond 1,024 terms, and this is what
a thousand rows of eight thousand weights cost."""
WORTHWHILE = 0.875
"""A reference that is expensive at every size is not made smaller: each halving of a size has to
bring the effort below this part of what it was."""
ROW_BEYOND_BLOCK = 1031
"""A prime above 1,024, the widest block that row-wise kernels commonly take in one piece."""
LONG_ROW = 4096
"""Terms of the longest reduction: enough for a half total to stagnate."""
TILE_BEYOND_BLOCK = 131
"""A prime above 128, the usual side of a tile."""
WIDEST_HEAD = 256
"""Sizes of an attention up to here, natively, may be the width of a head, which kernels keep whole:
at a larger one an honest kernel may not fit a device."""
ROW_COUNT = 8
"""What a size that only counts rows is lowered towards while others are lowered to a tile."""
MINIMUM = 2
"""No size goes below it while another can be lowered: errors of indexing would hide there."""
VARIED_BUDGET_CALLS = 24
"""Effort of all variations together, in calls of the base or of a cheap reference."""
SMALL_COUNT = 3
"""For the constants that only repeat the work."""
FIXED_BUDGET_ELEMENTS = 1 << 26
"""Inputs of a reference that has no sizes to lower: beyond this it is not even tried."""
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
        _check_fixed(source, origin)
        return ShapeFamily()
    base = _shrink(source, origin, sizes)
    return ShapeFamily(
        base=base,
        vary=_variations(source, origin, base),
        long=_long(source, origin, base, sizes),
    )


def input_elements(source: str, sizes: Mapping[str, int], origin: str) -> int:
    """Elements of all inputs together, without allocating them."""
    return sum(math.prod(shape) for shape in _shapes(load_reference(source, sizes, origin)))


def rows_only(source: str, origin: str) -> dict[str, int]:
    """The native shape with everything that only counts rows lowered to two."""
    sizes = _input_sizes(source, origin, size_constants(source, origin))
    floors = {name: _floor(source, origin, name, value) for name, value in sizes.items()}
    return {
        name: min(value, 2) if floors[name] == ROW_COUNT else value for name, value in sizes.items()
    }


def widest_member(
    source: str, origin: str, base: Mapping[str, int], budget_elements: int
) -> dict[str, int]:
    """The native shape if inputs and outputs fit the budget, else with two rows, else the base.

    Magnitudes often depend on the width and never on the number of rows.
    """
    for sizes in ({}, rows_only(source, origin)):
        try:
            inputs = input_elements(source, sizes, origin)
        except TaskError:
            continue
        outputs = output_elements(source, sizes, origin)
        if sizes and outputs is None:
            continue
        if max(inputs, outputs or 0) <= budget_elements:
            return sizes
    return dict(base)


def _output_shapes(source: str, sizes: Mapping[str, int], origin: str) -> Shapes | None:
    run = meta_run(source, sizes, origin)
    return None if run is None else run.output_shapes


def _shapes(reference: Reference) -> Shapes:
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
    floors = {name: _floor(source, origin, name, value) for name, value in native.items()}
    sizes = _lowered(source, origin, native, floors)
    keeps_heads = attends(source, origin)
    for candidate in (*_odd(sizes), *_stretched(source, origin, sizes, floors), sizes):
        beyond = max(candidate.values()) >= TILE_BEYOND_BLOCK
        raised = keeps_heads and any(
            native[name] < value for name, value in candidate.items() if native[name] <= WIDEST_HEAD
        )
        fits = candidate is sizes or (beyond and not raised)
        if fits and _runs(source, candidate, origin):
            return candidate
    _check(source, sizes, origin)
    return sizes


def _lowered(
    source: str, origin: str, native: Mapping[str, int], floors: Mapping[str, float]
) -> dict[str, int]:
    """Sizes lowered one at a time until inputs, outputs and effort fit the budget."""
    sizes = dict(native)
    for _ in range(STEPS_LIMIT):
        fits = _fits_memory(source, sizes, origin)
        units = call_units(source, sizes, origin)
        if fits and units <= BASE_BUDGET_UNITS:
            break
        smaller = _smaller(source, origin, sizes, floors)
        if smaller is None:
            break
        if fits and call_units(source, smaller, origin) > WORTHWHILE * units:
            break
        sizes = smaller
    return sizes


def _affordable(source: str, sizes: Mapping[str, int], origin: str) -> bool:
    fits = _fits_memory(source, sizes, origin)
    return fits and call_units(source, sizes, origin) <= BASE_BUDGET_UNITS


def _fits_memory(source: str, sizes: Mapping[str, int], origin: str) -> bool:
    if input_elements(source, sizes, origin) > BASE_BUDGET_ELEMENTS:
        return False
    return (output_elements(source, sizes, origin) or 0) <= OUTPUT_BUDGET_ELEMENTS


def _stretched(
    source: str, origin: str, sizes: Mapping[str, int], floors: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Where many axes share the budget and none is beyond a block: one that is, at their cost."""
    for name in reversed([each for each in sizes if floors[each] > ROW_COUNT]):
        kept = {**floors, name: math.inf}  # lowered last
        stretched = _lowered(source, origin, {**sizes, name: TILE_BEYOND_BLOCK}, kept)
        if stretched[name] == TILE_BEYOND_BLOCK and _affordable(source, stretched, origin):
            yield stretched


def _floor(source: str, origin: str, name: str, value: int) -> int:
    """How small a size should become: small for what only counts rows, a tile for the rest."""
    try:
        inputs = _moved(
            _shapes(load_reference(source, {}, origin)),
            _shapes(load_reference(source, {name: value + 1}, origin)),
        )
    except TaskError:
        return TILE_BEYOND_BLOCK
    before, after = (_output_shapes(source, sizes, origin) for sizes in ({}, {name: value + 1}))
    known = before is not None and after is not None
    outputs = _moved(before, after) if before is not None and after is not None else {0}
    rows = inputs == {0} and (not known or outputs == {0})
    return ROW_COUNT if rows else TILE_BEYOND_BLOCK


def _moved(before: Shapes, after: Shapes) -> set[int]:
    """The axes along which tensors of more than one axis differ."""
    return {
        axis
        for one, two in zip(before, after, strict=False)
        for axis, (old, new) in enumerate(zip(one, two, strict=False))
        if old != new and len(one) > 1
    }


def _smaller(
    source: str, origin: str, sizes: Mapping[str, int], floors: Mapping[str, float]
) -> dict[str, int] | None:
    """The same sizes with the one halved that is farthest above its floor and still runs."""
    shapeless = _output_shapes(source, {}, origin) is not None
    for name in sorted(sizes, key=lambda each: _excess(sizes[each], floors[each]), reverse=True):
        for trial in _moves(sizes, name, sizes[name] // 2):
            if trial[name] < 1:
                continue
            try:
                elements = input_elements(source, trial, origin)
            except TaskError:
                continue
            if shapeless and _output_shapes(source, trial, origin) is None:
                continue
            if elements > BASE_BUDGET_ELEMENTS or _runs(source, trial, origin):
                return trial
    return None


def _excess(value: int, floor: float) -> float:
    """How far a size is above its floor; the last two rows or columns go last of all."""
    return value / floor if value >= 2 * MINIMUM else 0.0


def _moves(sizes: Mapping[str, int], name: str, value: int) -> tuple[dict[str, int], ...]:
    """A size moved alone, and together with those that equal it: they may have to be equal."""
    alone = {**sizes, name: value}
    equal = {each: value for each in sizes if sizes[each] == sizes[name]}
    return (alone,) if len(equal) == 1 else (alone, {**sizes, **equal})


def _odd(sizes: Mapping[str, int]) -> tuple[dict[str, int], ...]:
    """The largest size moved to a prime beyond a block, the smallest ones kept small."""
    largest = max(sizes, key=lambda name: sizes[name])
    value = sizes[largest]
    prime = ROW_BEYOND_BLOCK if value >= ROW_BEYOND_BLOCK // 2 else TILE_BEYOND_BLOCK
    return _moves(sizes, largest, prime) if value >= TILE_BEYOND_BLOCK // 2 else ()


def _variations(source: str, origin: str, base: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """For each size the values that it takes alone, each a call of the reference, within a budget.

    The first values of every size come before the further ones of any.
    """
    queues = {name: _wanted(value) for name, value in base.items()}
    kept: dict[str, list[int]] = {name: [] for name in base}
    left = VARIED_BUDGET_CALLS * max(BASE_BUDGET_UNITS, call_units(source, base, origin))
    for turn in range(max(map(len, queues.values()))):
        for name, queue in queues.items():
            for value in queue[turn : turn + 1]:
                units = call_units(source, {**base, name: value}, origin)
                if units <= left and _runs(source, {**base, name: value}, origin):
                    kept[name].append(value)
                    left -= units
    return {name: tuple(sorted(values)) for name, values in kept.items()}


def _wanted(value: int) -> list[int]:
    """Values beside a base value, the most telling first: one, beyond a block, around a block."""
    wanted = dict.fromkeys((1, 33, value + 1, value - 1, 17, 31, 2, 129, 127))
    return [each for each in wanted if 1 <= each <= max(2 * value, 33) and each != value]


def _long(
    source: str, origin: str, base: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[str, int]:
    """The base with its reduced size raised as far as the budget allows and the rest lowered."""
    reduced, largest = _raisable(source, origin, base, sizes)
    for small in (SMALL_COUNT, None):
        member = {
            name: value if small is None else min(value, small) for name, value in base.items()
        }
        member[reduced] = base[reduced]
        limit = max(sizes[reduced], LONG_ROW)
        while member[reduced] < limit and _fits(source, origin, member, reduced, largest):
            member[reduced] = member[reduced] * 2 + 1
        if _runs(source, member, origin):
            return member
    return dict(base)


def _fits(source: str, origin: str, member: Mapping[str, int], name: str, largest: int) -> bool:
    longer = {**member, name: member[name] * 2 + 1}
    return (
        longer[name] <= largest
        and input_elements(source, longer, origin) <= LONG_BUDGET_ELEMENTS
        and call_units(source, longer, origin) <= LONG_BUDGET_UNITS
    )


def _raisable(
    source: str, origin: str, base: Mapping[str, int], native: Mapping[str, int]
) -> tuple[str, int]:
    """The size that makes the longest reduction, and how large it may become."""
    if not attends(source, origin):
        return _reduced(source, origin, base), 2 * LONG_ROW
    lengths = [name for name in base if native[name] > WIDEST_HEAD]
    name = max(lengths or base, key=lambda each: base[each])
    return name, 2 * LONG_ROW if lengths else native[name]


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
    return sum(map(math.prod, _leaf_shapes(_run(source, sizes, origin))))


def _leaf_shapes(output: Any) -> Shapes:
    leaves = torch.utils._pytree.tree_leaves(output)
    return [tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _check_fixed(source: str, origin: str) -> None:
    elements = input_elements(source, {}, origin)
    if elements > FIXED_BUDGET_ELEMENTS:
        raise TaskError(
            f"{origin}: its inputs have {elements} elements, and it has no module-level integer "
            "constant by which they could be made smaller"
        )
    _check(source, {}, origin)


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
