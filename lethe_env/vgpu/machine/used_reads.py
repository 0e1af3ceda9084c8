"""Loads of what nobody has written are faults only if the value is used.

A launch that loaded such a value is repeated, on copies of the memory as it was before, by a kernel
that follows the value. So clean launches pay for a copy at most, and only where memory that is
written in part lies within the reach of their loads.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import dataclass, replace

import numpy as np

from ..ptx.model import Kernel, Location, UnsupportedError
from .plan import Plan
from .report import Finding, LaunchReport

_SIZE, _HOST, _DEFINED = 1, 2, 3
"""Columns of the table."""
_ALIGN_BYTES = 64


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An address space in which some windows are copies; a `Memory` for a launch."""

    table: np.ndarray
    windows: frozenset[int]
    copies: tuple[np.ndarray, ...]
    """What rows of these windows lead to in place of the memory itself."""

    @staticmethod
    def of(table: np.ndarray, windows: frozenset[int]) -> Snapshot:
        """What is in windows of a table now."""
        table, copies = table.copy(), []
        for window in windows:
            size = int(table[window, _SIZE])
            for column in (_HOST, _DEFINED):
                place = int(table[window, column])
                if place:
                    copies.append(_copy(place, size))
                    table[window, column] = copies[-1].ctypes.data
        return Snapshot(table, windows, tuple(copies))

    def renewed(self) -> Snapshot:
        """One to write to, which leaves this as it is."""
        return Snapshot.of(self.table, self.windows)


def snapshot(table: np.ndarray, plan: Plan) -> Snapshot | None:
    """What a launch may write, as it is now; `None` if it cannot load anything undefined.

    Args:
        table: Rows of `layout.Row`.
        plan: Of the launch.
    """
    if all(_is_defined(table, window) for window in plan.loaded):
        return None
    return Snapshot.of(table, plan.written)


def keep_used(
    kernel: Kernel, report: LaunchReport, repeat: Callable[[Set[int]], LaunchReport]
) -> LaunchReport:
    """The report without loads whose value is not used; the others tell where it is.

    Args:
        kernel: What was launched.
        report: Of the launch.
        repeat: Launches the tracking kernel for loads at these positions.
    """
    kinds = {finding.kind for finding in report.findings}
    doubtful: dict[Location | int, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        if _is_doubtful(kernel, finding):
            doubtful[finding.location or finding.index].append(finding)
    if not doubtful or report.stopped or "out_of_bounds" in kinds:
        return report
    told: dict[int, Finding | None] = {}
    for group in doubtful.values():
        use = _first_use(repeat, frozenset(finding.index for finding in group))
        for finding in group:
            told[finding.index] = None if use is None else _used_at(finding, use)
    findings = (told[f.index] if _is_doubtful(kernel, f) else f for f in report.findings)
    return replace(report, findings=tuple(f for f in findings if f is not None))


def _is_doubtful(kernel: Kernel, finding: Finding) -> bool:
    """Whether it is a load from global memory, which a tracking kernel can follow."""
    if finding.kind != "uninitialised_read":
        return False
    opcode = kernel.body[finding.index].opcode
    return (opcode[0] == "ld" and "global" in opcode) or opcode[:2] == ("cp", "async")


def _first_use(repeat: Callable[[Set[int]], LaunchReport], loads: Set[int]) -> str | None:
    """Where what these load is used, in words; `None` if nowhere."""
    try:
        report = repeat(loads)
    except UnsupportedError:
        return ""
    uses = [finding for finding in report.findings if finding.opcode.startswith("use.")]
    if report.stopped or not uses:
        return "" if report.stopped else None
    place = uses[0].location
    return "" if place is None else f"line {place.line}"


def _used_at(finding: Finding, use: str) -> Finding:
    own = finding.location is not None and use == f"line {finding.location.line}"
    if not use or own:
        return finding
    return replace(finding, detail=f"{finding.detail}; {use} uses the value")


def _is_defined(table: np.ndarray, window: int) -> bool:
    """Whether every byte of a window is written."""
    defined = int(table[window, _DEFINED])
    if not defined:
        return True
    return bool(_bytes_at(defined, int(table[window, _SIZE])).view(np.bool_).all())


def _copy(place: int, size: int) -> np.ndarray:
    """The bytes at an address, aligned as they are there."""
    room = np.empty(size + 2 * _ALIGN_BYTES, np.uint8)
    start = (place - room.ctypes.data) % _ALIGN_BYTES
    own = room[start : start + size]
    own[:] = _bytes_at(place, size)
    return own


def _bytes_at(place: int, size: int) -> np.ndarray:
    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(place)), np.uint8)
