"""From what the threads of a launch left behind to its report."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Sequence

from .cluster_barriers import TWICE, UNARRIVED
from .cluster_memory import ENDED_BIT, FOREIGN, FOREIGN_RANK_BIT, HOME_BIT, SEVERAL
from .counts import summarise
from .deadlock import deadlocks
from .layout import (
    ASSERT,
    FINDING_KINDS,
    MESSAGES,
    MOST_RANKS,
    STOPS,
    VARIABLES_WINDOW,
    WINDOW_BITS,
    Message,
    Record,
)
from .report import Finding, LaunchReport
from .shadow import UNIT_WARP, WARP_BITS
from .units import MISUSES, Misuse
from .worker import Launch, Worker

_CLUSTER_FAULTS = {
    TWICE: "threads arrive that have arrived already and not waited",
    UNARRIVED: "threads wait that have not arrived",
}
_PLACEHOLDER = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?(hh|h|ll|l|j|z|t)?([diouxXeEfFgGaAcsp%])")


def merge(launch: Launch, workers: Sequence[Worker]) -> LaunchReport:
    """One report of all threads: every finding once, counts summed."""
    seen: dict[tuple[int, int], Record] = {}
    for worker in workers:
        for record in worker.records[: worker.context.record_count]:
            seen.setdefault((record.site, record.kind), record)
    findings = [_finding(launch, seen[key]) for key in sorted(seen)]
    stop = STOPS[max(worker.context.stop for worker in workers)]
    findings += deadlocks(launch, workers)
    executions, events = [w.executions for w in workers], [w.events for w in workers]
    return LaunchReport(
        findings=tuple(findings),
        counts=summarise(launch.program.tally, executions, events),
        messages=tuple(_text(launch, m) for worker in workers for m in _messages(worker)),
        stopped=stop,
    )


def _finding(launch: Launch, record: Record) -> Finding:
    instruction = launch.program.sites[record.site]
    kind = FINDING_KINDS[record.kind]
    return Finding(
        kind=kind,
        kernel=launch.program.kernel.name,
        opcode=instruction.name,
        location=instruction.location,
        lanes=record.lanes.bit_count(),
        address=record.address,
        detail=_detail(launch, kind, record),
        index=instruction.index,
    )


def _detail(launch: Launch, kind: str, record: Record) -> str:
    opcode = launch.program.sites[record.site].opcode
    block = f"in block {launch.block_name(record.block)}"
    if kind == "asynchronous":
        return f"{MISUSES[Misuse(record.other)]}, {block}"
    if kind == "out_of_bounds" and not record.other:
        return f"the cluster has no such block, {block}"
    if kind == "out_of_bounds":
        return f"{record.other} bytes per lane lie outside the allocation, {block}"
    if kind == "uninitialised_read":
        shared = opcode[0] == "ldmatrix" or (opcode[0] != "cp" and "shared" in opcode)
        pending = ", or an asynchronous copy to it was not waited for" if shared else ""
        return f"nobody has written what is read{pending}, {block}"
    if opcode[:2] == ("barrier", "cluster") and record.other:
        return f"{_CLUSTER_FAULTS[record.other]}, {block}"
    if opcode[0] in ("bar", "barrier"):
        return f"a part of a warp does not reach the barrier, {block}"
    other = record.other
    if kind == "barrier" and other >> ENDED_BIT:
        rank = other & (MOST_RANKS - 1)
        return f"{_block(rank)} may have ended before this access to its shared memory, {block}"
    if kind == "barrier" and (other & FOREIGN or other >> HOME_BIT):
        rank = (other >> HOME_BIT) - 1
        if other & FOREIGN:
            rank = other >> FOREIGN_RANK_BIT & (MOST_RANKS - 1)
        who = f"{_warps(other)} of {_block(rank)}"
        if other & SEVERAL == SEVERAL:
            who = "several blocks of the cluster"
        return f"{who} accessed the same shared memory, and nothing orders the two, {block}"
    if kind == "barrier":
        return f"{_warps(other)} accessed the same shared memory since the last barrier, {block}"
    who = "several blocks" if other > launch.blocks else f"block {launch.block_name(other - 1)}"
    return f"{who} accessed the same memory, and nothing orders them; found {block}"


def _warps(mark: int) -> str:
    """Who left a mark in shared memory."""
    warp = mark & ((1 << WARP_BITS) - 1)
    names = {UNIT_WARP: "a copy of a tile", (1 << WARP_BITS) - 1: "several other warps"}
    return names.get(warp, f"warp {warp - 1}")


def _block(rank: int) -> str:
    return f"the block of rank {rank} in the cluster"


def _messages(worker: Worker) -> Sequence[Message]:
    count = min(worker.context.message_count, MESSAGES)
    if not count:
        return ()
    return ctypes.cast(worker.context.messages, ctypes.POINTER(Message))[:count]


def _text(launch: Launch, message: Message) -> str:
    words = [_string(launch, word) for word in message.words]
    if message.kind == ASSERT:
        block = launch.block_name(message.block)
        where = f"{words[1]}:{message.words[2]}"
        return f"{where}: {words[3]}: block {block}, thread {message.thread}: {words[0]}"
    return _format(launch, words[0], bytes(message.data))


def _string(launch: Launch, address: int) -> str:
    """The text of a variable of the kernel at a fake address."""
    if address >> WINDOW_BITS != VARIABLES_WINDOW:
        return ""
    start = address & ((1 << WINDOW_BITS) - 1)
    return launch.variables[start:].split(b"\0", 1)[0].decode(errors="replace")


def _format(launch: Launch, template: str, data: bytes) -> str:
    """What C's `printf` would print; arguments are naturally aligned in `data`."""
    position = 0

    def take(match: re.Match[str]) -> str:
        nonlocal position
        length, kind = match.groups()
        if kind == "%":
            return "%"
        wide = kind in "eEfFgGaAsp" or length in ("l", "ll", "j", "z", "t")
        size = 8 if wide else 4
        position = -(-position // size) * size
        code = "d" if kind in "eEfFgGaA" else ("q" if wide else "i") if kind in "di" else (
            "Q" if wide else "I"
        )  # fmt: skip
        (value,) = struct.unpack_from(f"<{code}", data, position)
        position += size
        if kind == "s":
            return _string(launch, value)
        if kind == "p":
            return f"{value:#x}"
        if kind in "aA":
            return float(value).hex()
        return re.sub("hh|h|ll|l|j|z|t", "", match[0]) % value

    return _PLACEHOLDER.sub(take, template)
