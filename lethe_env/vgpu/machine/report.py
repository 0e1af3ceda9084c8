"""What a launch tells: findings and counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..ptx.model import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something a kernel must not do, found while it ran; once per kind and instruction."""

    kind: str
    """`out_of_bounds`, `uninitialised_read`, `race` (between blocks), or `barrier` (in a
    block), or `asynchronous`: a misuse of a unit beside the warps."""
    kernel: str
    opcode: str
    location: Location | None
    lanes: int
    """Lanes of the warp at fault, the first time."""
    address: int
    """Fake address of the first such lane; an offset where shared memory is meant."""
    detail: str
    index: int = -1
    """Position of the instruction in the kernel's body; -1 where none is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchReport:
    """The outcome of one launch."""

    findings: tuple[Finding, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """Events of the whole grid, by name; see `counts.NAMES`."""
    messages: tuple[str, ...] = ()
    """What the kernel printed, and the text of a failed device assertion."""
    stopped: str = ""
    """Why the launch ended early: `deadlock`, `trap`, `assert`, or empty."""
