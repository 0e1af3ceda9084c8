"""Which parameters and variables the addresses of a kernel's stores and loads may come from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from ..ptx.dataflow import destinations, sources
from ..ptx.model import Address, Instruction, Kernel, Symbol
from .registers import registers_of

_WRITING = frozenset(("st", "atom", "red"))
_ELSEWHERE = frozenset(("shared", "shared::cta", "shared::cluster", "local", "param"))
"""State spaces that are not global memory; a generic address may lead there."""

_LOADING = frozenset(("ld", "ldu", "atom", "ldmatrix", "call"))
_MEMORY = -1
"""Stands for whatever lies in memory."""


@dataclass(frozen=True, slots=True)
class Accessed:
    """Positions of the parameters that addresses in global memory are computed from.

    Every register is taken to depend on all that any instruction computes it from, wherever that
    instruction stands. Variables of the module count like parameters after the last one. `None`
    where an address may come from memory, as that of a tensor map does.
    """

    written: frozenset[int] | None
    """Of stores and atomic operations."""
    loaded: frozenset[int] | None
    """Of loads and asynchronous copies."""


def accessed_parameters(kernel: Kernel) -> Accessed:
    """From which parameters a kernel's accesses to global memory may come."""
    if any(i.opcode[0] == "tensormap" or "tensor" in i.opcode for i in kernel.body):
        return Accessed(None, None)
    variables = _variables(kernel)
    origins = _origins(kernel, variables)
    written: set[int] = set()
    loaded: set[int] = set()
    for instruction in kernel.body:
        name, local = instruction.opcode[0], not _ELSEWHERE.isdisjoint(instruction.opcode)
        if name in _WRITING and not local:
            written |= _of_addresses(instruction, origins, variables)
        elif name == "cp" or (name == "ld" and not local):
            loaded |= _of_addresses(instruction, origins, variables)
    return Accessed(*(None if _MEMORY in k else frozenset(k) for k in (written, loaded)))


def _of_addresses(
    instruction: Instruction, origins: Mapping[str, set[int]], variables: Mapping[str, int]
) -> set[int]:
    found: set[int] = set()
    for operand in instruction.operands:
        if isinstance(operand, Address):
            found |= _named((operand.base,), variables)
            for name in registers_of(operand):
                found |= origins[name]
    return found


def _variables(kernel: Kernel) -> dict[str, int]:
    names = (name for name, v in kernel.variables.items() if v.space == "global")
    return {name: len(kernel.parameters) + k for k, name in enumerate(names)}


def _origins(kernel: Kernel, variables: Mapping[str, int]) -> dict[str, set[int]]:
    numbers = {parameter.name: k for k, parameter in enumerate(kernel.parameters)}
    origins: dict[str, set[int]] = defaultdict(set)
    edges = []
    for instruction in kernel.body:
        targets = destinations(instruction)
        own = _loaded(instruction, numbers, variables)
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


def _loaded(
    instruction: Instruction, parameters: Mapping[str, int], variables: Mapping[str, int]
) -> Set[int]:
    """What an instruction brings in besides its registers."""
    if instruction.opcode[0] not in _LOADING:
        return _named(instruction.operands, {**variables, **parameters})
    for operand in instruction.operands:
        if isinstance(operand, Address):
            found = _named((operand.base,), parameters)
            if found:
                return found
    return {_MEMORY}


def _named(operands: Iterable[object], numbers: Mapping[str, int]) -> set[int]:
    names = (operand.name for operand in operands if isinstance(operand, Symbol))
    return {numbers[name] for name in names if name in numbers}
