"""Which parameters of a kernel the addresses of its stores may come from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set

from ..ptx.dataflow import destinations, sources
from ..ptx.model import Address, Instruction, Kernel, Symbol
from .registers import registers_of

_WRITING = frozenset(("st", "atom", "red"))
_ELSEWHERE = frozenset(("shared", "shared::cta", "local", "param"))
"""State spaces that are not global memory; a generic address may lead there."""

_LOADING = frozenset(("ld", "ldu", "atom", "ldmatrix", "call"))
_MEMORY = -1
"""Stands for whatever lies in memory."""


def written_parameters(kernel: Kernel) -> frozenset[int] | None:
    """Positions of the parameters from which addresses of stores to global memory are computed.

    Every register is taken to depend on all that any instruction computes it from, wherever that
    instruction stands. `None` where an address may come from memory.
    """
    origins = _origins(kernel)
    found: set[int] = set()
    for instruction in kernel.body:
        if instruction.opcode[0] in _WRITING and _ELSEWHERE.isdisjoint(instruction.opcode):
            for operand in instruction.operands:
                if isinstance(operand, Address):
                    for name in registers_of(operand):
                        found |= origins[name]
    return None if _MEMORY in found else frozenset(found)


def _origins(kernel: Kernel) -> dict[str, set[int]]:
    numbers = {parameter.name: k for k, parameter in enumerate(kernel.parameters)}
    origins: dict[str, set[int]] = defaultdict(set)
    edges = []
    for instruction in kernel.body:
        targets = destinations(instruction)
        own = _loaded(instruction, numbers)
        for name in targets:
            origins[name] |= own
        edges.append((targets, sources(instruction)))
    changed = True
    while changed:
        changed = False
        for targets, read in edges:
            incoming = set().union(*(origins[name] for name in read))
            for name in targets:
                if not incoming <= origins[name]:
                    origins[name] |= incoming
                    changed = True
    return origins


def _loaded(instruction: Instruction, numbers: dict[str, int]) -> Set[int]:
    """What an instruction brings in besides its registers."""
    if instruction.opcode[0] not in _LOADING:
        symbols = (o.name for o in instruction.operands if isinstance(o, Symbol))
        return {numbers[name] for name in symbols if name in numbers}
    for operand in instruction.operands:
        base = operand.base if isinstance(operand, Address) else None
        if isinstance(base, Symbol) and base.name in numbers:
            return {numbers[base.name]}
    return {_MEMORY}
