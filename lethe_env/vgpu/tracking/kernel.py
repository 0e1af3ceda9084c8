"""The kernel that follows what some loads read, made from the kernel itself.

Every register that may hold such a value gets a shadow of its width, in which a bit is 1 where
that bit of the register depends on what nobody has written. Instructions that move bits move those
of the shadows; those that compute with them make their whole result undefined. A second part of
shared memory holds the shadow of the first. What is stored elsewhere, steers the flow or an access,
or is an address, is used, and the instruction `use` reports it.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from ..ptx.dataflow import destinations, sources
from ..ptx.model import Instruction, Kernel, UnsupportedError
from . import accesses, rules
from .taint import STEERING, is_access, is_shared, taint
from .tracker import Tracker


def tracking_kernel(kernel: Kernel, loads: Set[int], mirror_bytes: int) -> Kernel:
    """A kernel that does the same, and reports where what it loaded undefined is used.

    Beside PTX's opcodes it has two: `undefined`, with the form of `ld`, loads a bit of 1 for each
    bit that nobody has written; `use.<type>` reports lanes in which its operand is not zero.

    Args:
        kernel: The kernel.
        loads: Positions in its body of the `ld` and `cp.async` to follow.
        mirror_bytes: Where in shared memory the shadow of shared memory lies.

    Raises:
        UnsupportedError: a load is made by a unit of its own.
    """
    if any("bulk" in kernel.body[load].opcode for load in loads):
        raise UnsupportedError("following what copies of tiles bring")
    reached = taint(kernel, loads)
    tracker = Tracker(kernel, reached, mirror_bytes)
    starts = []
    for instruction in kernel.body:
        starts.append(len(tracker.body))
        tracker.begin(instruction)
        named = destinations(instruction) | sources(instruction)
        mirrored = reached.shared and is_access(instruction) and is_shared(instruction)
        if mirrored or instruction.index in loads or not named.isdisjoint(reached.registers):
            _follow(tracker, instruction, instruction.index in loads)
        tracker.keep()
    starts.append(len(tracker.body))
    return replace(
        kernel,
        registers=tracker.registers(),
        body=tuple(tracker.body),
        labels={label: starts[at] for label, at in kernel.labels.items()},
    )


def _follow(tracker: Tracker, instruction: Instruction, followed: bool) -> None:
    if is_access(instruction):
        accesses.access(tracker, instruction, followed)
    elif instruction.opcode[0] in STEERING:
        guard = instruction.predicate
        for name in sorted(sources(instruction)):
            tracker.use_register(name, guarded=guard is None or name != guard.name)
        for name in sorted(destinations(instruction)):
            tracker.set_all(name, None)
    else:
        rules.compute(tracker, instruction)
