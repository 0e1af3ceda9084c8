"""Loops that wait for another thread: their way out depends on memory that they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .blocks import BRANCHES, LEAVING, Loop
from .dataflow import destinations, sources
from .flow import Flow
from .model import Instruction, Kernel

_READING = frozenset(("ld", "atom"))
_CLOCKS = frozenset(("%clock", "%clock64", "%globaltimer", "%clock_hi", "%globaltimer_lo"))
_PRIVATE = frozenset(("param", "const", "local"))


@dataclass(frozen=True, slots=True)
class PollingLoop:
    """A loop whose way out depends on memory that it reads."""

    read: int
    """Index of such a read."""
    carried: tuple[str, ...]
    """Registers that may take a value from one round to the next."""
    timed: bool
    """Whether it looks at a clock, so that no round is like another."""


@dataclass(frozen=True, slots=True)
class Polling:
    """The loops of a kernel in which threads may wait for others."""

    loops: Mapping[int, PollingLoop]
    """By their first blocks."""
    across_blocks: bool
    """Whether a read is of memory that other blocks can write."""


def polling(kernel: Kernel, flow: Flow) -> Polling:
    """Where a kernel may wait in a loop; a few loops more than do so."""
    loops: dict[int, PollingLoop] = {}
    across = False
    for loop in flow.loops:
        found = _reads_for_exit(kernel, flow, loop)
        if found:
            loops.setdefault(loop.header, _described(kernel, flow, loop, found))
            across = across or any(not _is_shared(read) for read in found)
    return Polling(loops, across)


def _described(kernel: Kernel, flow: Flow, loop: Loop, reads: list[Instruction]) -> PollingLoop:
    written: set[str] = set()
    exposed: set[str] = set()
    for at in range(loop.header, loop.stop):
        fresh: set[str] = set()
        for instruction in _code(kernel, flow, at):
            exposed |= sources(instruction) - fresh
            if instruction.predicate is None:
                fresh |= destinations(instruction)
            written |= destinations(instruction)
    timed = any(name in _CLOCKS for name in exposed)
    return PollingLoop(_most_telling(reads).index, tuple(sorted(written & exposed)), timed)


def _reads_for_exit(kernel: Kernel, flow: Flow, loop: Loop) -> list[Instruction]:
    """Reads of memory in a loop, if one of its ways out depends on any."""
    numbers = range(loop.header, loop.stop)
    code = [i for at in numbers for i in _code(kernel, flow, at)]
    reads = [i for i in code if i.opcode[0] in _READING and _PRIVATE.isdisjoint(i.opcode)]
    tainted = {name for read in reads for name in destinations(read)}
    size = -1
    while size != len(tainted):
        size = len(tainted)
        for instruction in code:
            if not tainted.isdisjoint(sources(instruction)):
                tainted |= destinations(instruction)
    for at in numbers:
        last = _code(kernel, flow, at)[-1]
        leaves = any(not loop.header <= to < loop.stop for to in flow.blocks[at].successors)
        leaves = leaves or last.opcode[0] in LEAVING
        parts = last.opcode[0] in BRANCHES | LEAVING and leaves
        if parts and not tainted.isdisjoint(sources(last)):
            return reads
    return []


def _code(kernel: Kernel, flow: Flow, number: int) -> tuple[Instruction, ...]:
    block = flow.blocks[number]
    return kernel.body[block.start : block.stop]


def _is_shared(read: Instruction) -> bool:
    return any(part.split("::")[0] == "shared" for part in read.opcode)


def _most_telling(reads: list[Instruction]) -> Instruction:
    """An atomic operation if there is one, else a read of global memory: the one to report."""
    return min(reads, key=lambda read: (_is_shared(read), read.opcode[0] != "atom", read.index))
