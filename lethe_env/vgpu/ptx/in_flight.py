"""Registers that an instruction still fills, or reads, after a warp has gone on.

`wgmma` writes its results until its group is waited for, `tcgen05.ld` until `tcgen05.wait::ld`.
What else touches such a register before is at fault wherever it stands: it is found in the text.
So is a `wgmma` whose registers were set after the last `wgmma.fence`.

A `mov` of what `tcgen05.ld` fills is no use of it but another name: NVIDIA's compiler packs loaded
registers in pairs before it waits. The new register then has to be waited for as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .dataflow import destinations, sources
from .flow import Flow
from .model import Immediate, Instruction, Kernel, Register, Vector

_ALL = "*"
_MOST_GROUPS = 8
"""Groups that are told apart; older ones count as this old."""


@dataclass(frozen=True, slots=True)
class _State:
    """What holds where a block begins."""

    products: dict[str, int] = field(default_factory=dict)
    """Registers that a product fills, with the groups that were closed since."""
    loads: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset((_ALL,))
    """Registers set since the last `wgmma.fence`; `_ALL` where there was none."""

    def merged(self, other: _State) -> _State:
        products = dict(self.products)
        for name, age in other.products.items():
            products[name] = min(age, products.get(name, age))
        return _State(products, self.loads | other.loads, self.changed | other.changed)


@dataclass(frozen=True, slots=True)
class RegisterFaults:
    """Indices of instructions that touch registers at a wrong time."""

    early: frozenset[int] = frozenset()
    """They do not wait for what fills the register."""
    unfenced: frozenset[int] = frozenset()
    """Products without a `wgmma.fence` after their registers were set."""


def register_faults(kernel: Kernel, flow: Flow) -> RegisterFaults:
    """Where a kernel does not mind what works on its registers."""
    if not any(i.opcode[0] in ("wgmma", "tcgen05") for i in kernel.body):
        return RegisterFaults()
    begins = {0: _State()}
    waiting = [0]
    early: set[int] = set()
    unfenced: set[int] = set()
    while waiting:
        at = waiting.pop()
        block, state = flow.blocks[at], begins[at]
        for instruction in kernel.body[block.start : block.stop]:
            if _is_early(instruction, state):
                early.add(instruction.index)
            if _is_unfenced(instruction, state):
                unfenced.add(instruction.index)
            state = _after(instruction, state)
        for to in block.successors:
            merged = begins[to].merged(state) if to in begins else state
            if to not in begins or merged != begins[to]:
                begins[to] = merged
                waiting.append(to)
    return RegisterFaults(frozenset(early), frozenset(unfenced))


def _is_early(instruction: Instruction, state: _State) -> bool:
    touched = destinations(instruction) | sources(instruction)
    used = destinations(instruction) if _renames(instruction) else touched
    if not used.isdisjoint(state.loads):
        return True
    if instruction.opcode[:2] == ("wgmma", "mma_async"):
        # Products may follow each other in their results, not in their factors.
        touched -= destinations(instruction)
    return not touched.isdisjoint(state.products)


def _renames(instruction: Instruction) -> bool:
    return instruction.opcode[0] == "mov" and instruction.predicate is None


def _is_unfenced(instruction: Instruction, state: _State) -> bool:
    if instruction.opcode[:2] != ("wgmma", "mma_async"):
        return False
    left = instruction.operands[1]
    items = left.items if isinstance(left, Vector) else ()
    used = {item.name for item in items if isinstance(item, Register)}
    return not state.changed.isdisjoint({_ALL, *used, *destinations(instruction)})


def _after(instruction: Instruction, state: _State) -> _State:
    products, loads, changed = state.products, state.loads, state.changed
    if instruction.opcode[:2] != ("wgmma", "mma_async"):
        changed |= destinations(instruction)
    match instruction.opcode:
        case ("wgmma", "mma_async", *_):
            products = {**products, **dict.fromkeys(destinations(instruction), 0)}
        case ("wgmma", "commit_group", *_):
            products = {name: min(age + 1, _MOST_GROUPS) for name, age in products.items()}
        case ("wgmma", "wait_group", *_):
            pending = instruction.operands[0]
            most = pending.value if isinstance(pending, Immediate) else 0
            products = {name: age for name, age in products.items() if age <= most}
        case ("wgmma", "fence", *_):
            changed = frozenset()
        case ("tcgen05", "ld", *_):
            loads |= destinations(instruction)
        case ("tcgen05", "wait::ld", *_):
            loads = frozenset()
        case ("mov", *_) if not loads.isdisjoint(sources(instruction)):
            loads |= destinations(instruction)
    return _State(products, loads, changed)
