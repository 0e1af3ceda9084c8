"""Basic blocks of a kernel, in an order that keeps loops together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .model import Instruction, Kernel, Symbol, UnsupportedError, Vector

LEAVING = frozenset({"ret", "exit", "trap"})
"""Opcodes that end a thread."""

BRANCHES = frozenset({"bra", "brx"})
"""Opcodes that go elsewhere within the kernel."""

Edges = Mapping[int, tuple[int, ...]]
"""Successors of each block."""


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions that run one after the other."""

    label: str
    """A label of its first instruction, or `""`."""
    start: int
    stop: int
    """The block is `kernel.body[start:stop]`, its branch included."""
    successors: tuple[int, ...]
    """Positions among all blocks: of a guarded branch, the target and then the next block."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Blocks `header` to `stop - 1`; every way in and every way back leads to `header`."""

    header: int
    stop: int


def blocks_and_loops(kernel: Kernel) -> tuple[tuple[Block, ...], tuple[Loop, ...]]:
    """The blocks that can be reached, loop-contiguous, and the loops, outer before inner.

    Raises:
        UnsupportedError: a loop with two ways in, or a branch of an unknown form.
    """
    bounds = list(itertools.pairwise(_leaders(kernel)))
    if not bounds:
        return (), ()
    number = {start: at for at, (start, _) in enumerate(bounds)}
    edges = {
        at: tuple(number[target] for target in _targets(kernel, stop - 1) if target in number)
        for at, (_, stop) in enumerate(bounds)
    }
    members: list[list[int]] = []
    order = _arrange(0, edges, members)
    position = {block: at for at, block in enumerate(order)}
    labels = {index: label for label, index in kernel.labels.items()}
    blocks = tuple(
        Block(labels.get(start, ""), start, stop, tuple(position[to] for to in edges[at]))
        for at, (start, stop) in ((at, bounds[at]) for at in order)
    )
    loops = tuple(Loop(position[loop[0]], position[loop[0]] + len(loop)) for loop in members)
    return blocks, loops


def _leaders(kernel: Kernel) -> list[int]:
    """Where blocks start, and the end of the body."""
    leaders = {0, len(kernel.body)}
    for instruction in kernel.body:
        if instruction.opcode[0] in BRANCHES | LEAVING:
            leaders.add(instruction.index + 1)
            leaders.update(_branch_targets(kernel, instruction))
    return sorted(leaders)


def _targets(kernel: Kernel, last: int) -> list[int]:
    """Where execution goes on after the instruction with this index, the end of the body aside."""
    instruction = kernel.body[last]
    targets = list(_branch_targets(kernel, instruction))
    leaves = instruction.opcode[0] in BRANCHES | LEAVING
    if not leaves or instruction.predicate is not None:
        targets.append(last + 1)
    return list(dict.fromkeys(targets))


def _branch_targets(kernel: Kernel, instruction: Instruction) -> Iterator[int]:
    match instruction:
        case Instruction(opcode=("bra", *_), operands=(Symbol(label),)):
            yield kernel.labels[label]
        case Instruction(opcode=("brx", *_), operands=(_, Vector(labels))):
            for label in labels:
                if isinstance(label, Symbol):
                    yield kernel.labels[label.name]
        case Instruction(opcode=("bra" | "brx", *_)):
            raise UnsupportedError("a branch of this form", instruction.name, instruction.location)


def _arrange(start: int, edges: Edges, loops: list[list[int]]) -> list[int]:
    """Blocks reachable from `start` in loop-contiguous order; appends every loop's blocks."""
    order: list[int] = []
    for component in _components(start, edges):
        if len(component) == 1 and component[0] not in edges[component[0]]:
            order += component
            continue
        header = _header(start, component, edges)
        inside = {
            block: tuple(to for to in edges[block] if to in component and to != header)
            for block in component
        }
        at = len(loops)
        loops.append([])
        loops[at] = _arrange(header, inside, loops)
        order += loops[at]
    return order


def _header(start: int, component: list[int], edges: Edges) -> int:
    entered = {to for block, targets in edges.items() if block not in component for to in targets}
    ways_in = (entered | {start}) & set(component)
    if len(ways_in) != 1:
        raise UnsupportedError("a loop with more than one way in")
    return ways_in.pop()


def _components(start: int, edges: Edges) -> Iterator[list[int]]:
    """Strongly connected components, each before those that it leads to (Kosaraju)."""
    order = _reverse_postorder(start, edges)
    sources: dict[int, list[int]] = {block: [] for block in order}
    for block in order:
        for target in edges[block]:
            sources[target].append(block)
    assigned: set[int] = set()
    for block in order:
        if block in assigned:
            continue
        component, waiting = [], [block]
        assigned.add(block)
        while waiting:
            member = waiting.pop()
            component.append(member)
            fresh = [source for source in sources[member] if source not in assigned]
            assigned.update(fresh)
            waiting += fresh
        yield component


def _reverse_postorder(start: int, edges: Edges) -> list[int]:
    finished: list[int] = []
    seen = {start}
    path = [(start, iter(edges[start]))]
    while path:
        block, remaining = path[-1]
        target = next((to for to in remaining if to not in seen), None)
        if target is None:
            finished.append(block)
            path.pop()
        else:
            seen.add(target)
            path.append((target, iter(edges[target])))
    return finished[::-1]
