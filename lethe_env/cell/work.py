"""What a call ran, as it crosses the border: grouped, so that its size is bounded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..tasks.work import CallWork, KernelWork, OperationWork
from ..vgpu.operations import Operation
from ..vgpu.timing import Counts

ENTRIES = 256
"""Different launches, and different operations, that cross; the rest is added to the last ones."""
_KINDS = 64
_LARGEST = 1 << 62
_KERNEL_NUMBERS = (
    *("launches", "blocks", "warps", "loaded_bytes", "stored_bytes", "sectors"),
    *("footprint_bytes", "bank_conflicts"),
)
_KERNEL_MAPPINGS = ("instructions", "mma_operations")

Entry = dict[str, Any]


def describe(launches: Iterable[tuple[str, Counts]], operations: Iterable[Operation]) -> Entry:
    """JSON form of a call's work, read back by `read`.

    Args:
        launches: kernel name and counts of each launch.
        operations: torch operations outside the kernels.
    """
    kernels = ({"kernel": name, "launches": 1, **_counts(counts)} for name, counts in launches)
    others = (
        {"name": o.name, "calls": 1, "bytes": o.bytes, "operations": dict(o.operations)}
        for o in operations
    )
    return {"kernels": _grouped(kernels), "operations": _grouped(others)}


def read(item: Any, text: Callable[[Any], str]) -> CallWork:
    """A call's work as a cell states it.

    Args:
        item: what came.
        text: reads a short text, or raises.

    Raises:
        KeyError, TypeError, ValueError: it is not of the form that `describe` gives.
    """
    kernels, operations = item["kernels"], item["operations"]
    if len(kernels) > ENTRIES or len(operations) > ENTRIES:
        raise ValueError("more entries than the limit")
    if any(entry["launches"] == 0 for entry in kernels) or any(o["calls"] == 0 for o in operations):
        raise ValueError("an entry for nothing")
    return CallWork(
        kernels=tuple(
            KernelWork(
                kernel=text(entry["kernel"]),
                **{name: _count(entry[name]) for name in _KERNEL_NUMBERS},
                **{name: _mapping(entry[name], text) for name in _KERNEL_MAPPINGS},
            )
            for entry in kernels
        ),
        operations=tuple(
            OperationWork(
                name=text(entry["name"]),
                calls=_count(entry["calls"]),
                bytes=_count(entry["bytes"]),
                operations=_mapping(entry["operations"], text),
            )
            for entry in operations
        ),
    )


def _counts(counts: Counts) -> Entry:
    numbers = {name: getattr(counts, name) for name in _KERNEL_NUMBERS if name != "launches"}
    return numbers | {name: dict(getattr(counts, name)) for name in _KERNEL_MAPPINGS}


def _grouped(entries: Iterable[Entry]) -> list[Entry]:
    """Equal entries added up; once there are `ENTRIES`, what differs joins the last one."""
    groups: dict[str, Entry] = {}
    for entry in entries:
        key = json.dumps(entry, sort_keys=True)
        if key not in groups and len(groups) == ENTRIES:
            key = next(reversed(groups))
        groups[key] = _sum(groups[key], entry) if key in groups else entry
    return list(groups.values())


def _sum(one: Entry, other: Entry) -> Entry:
    total: Entry = {}
    for name, value in one.items():
        if isinstance(value, Mapping):
            total[name] = dict(Counter(value) + Counter(other[name]))
        else:
            total[name] = value if isinstance(value, str) else value + other[name]
    return total


def _mapping(value: Any, text: Callable[[Any], str]) -> dict[str, int]:
    if not isinstance(value, dict) or len(value) > _KINDS:
        raise ValueError("not a small mapping")
    return {text(name): _count(count) for name, count in value.items()}


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise ValueError("not a count")
    return value
