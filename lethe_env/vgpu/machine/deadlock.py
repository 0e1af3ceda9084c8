"""Where threads of a launch wait that nobody will ever release."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

from ..ptx.model import Instruction, Kernel
from .launch import Launch
from .layout import STOPS, Fiber
from .report import Finding
from .worker import Worker

_DEADLOCK = STOPS.index("deadlock")
_TOLD = 8
"""Warps that a finding names, for there may be thousands."""


def deadlocks(launch: Launch, workers: Sequence[Worker]) -> list[Finding]:
    """One finding for every instruction at which warps are held.

    Where some poll, the others wait for them.
    """
    stuck = [worker for worker in workers if worker.context.stop == _DEADLOCK]
    if not stuck:
        return []
    held: dict[int, list[str]] = {}
    for worker in stuck:
        block = launch.block_name(worker.context.block)
        for fiber in _fibers(launch, worker):
            held.setdefault(_place(launch.program.kernel, fiber), []).append(
                _words(worker, fiber, block)
            )
    polled = {fiber.polling - 1 for worker in stuck for fiber in _fibers(launch, worker)} - {-1}
    ended = held.pop(-1, [])
    if polled:
        ended = [words for place in held.keys() - polled for words in held.pop(place)] + ended
    return [
        _finding(launch, launch.program.kernel.body[place], warps, ended)
        for place, warps in sorted(held.items())
    ]


def _fibers(launch: Launch, worker: Worker) -> Iterator[Fiber]:
    fibers = ctypes.cast(worker.context.fibers, ctypes.POINTER(Fiber))
    return (fibers[warp] for warp in range(launch.program.warps))


def _place(kernel: Kernel, fiber: Fiber) -> int:
    """Index of the instruction that holds a warp: its poll, or the first barrier; -1 if ended."""
    if fiber.done:
        return -1
    if fiber.polling:
        return int(fiber.polling) - 1
    if fiber.held_at:
        return int(fiber.held_at) - 1
    barriers = (i for i in kernel.body if i.opcode[0] in ("bar", "barrier"))
    return next((i.index for i in barriers if "cluster" not in i.opcode), 0)


def _words(worker: Worker, fiber: Fiber, block: str) -> str:
    where = f"warp {fiber.warp} of block {block}"
    if fiber.done:
        return f"{where} has ended"
    if fiber.polling:
        return f"{where} polls in a loop"
    if fiber.held_at and fiber.phase == worker.context.cluster:
        return f"{where} waits at the barrier of its cluster"
    if fiber.held_at:
        offset = fiber.phase - worker.context.shared_window.host
        return f"{where} waits for the mbarrier at byte {offset} of shared memory"
    return f"{where} waits at barrier {fiber.waiting - 1}"


def _finding(
    launch: Launch, instruction: Instruction, warps: list[str], ended: list[str]
) -> Finding:
    told = (warps + ended)[:_TOLD]
    more = len(warps) + len(ended) - len(told)
    rest = f"; {more} more warps" if more else ""
    return Finding(
        kind="barrier",
        kernel=launch.program.kernel.name,
        opcode=instruction.name,
        location=instruction.location,
        lanes=0,
        address=0,
        detail=f"deadlock: {'; '.join(told)}{rest}",
    )
