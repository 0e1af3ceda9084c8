"""Which registers hold one value in all lanes of a warp, and which blocks some lanes run alone.

A register is uniform when every one of its definitions is: computed from uniform values, under a
uniform guard, in a block that all lanes execute together. Blocks between a divergent branch and
the place where all paths from there meet again are not such blocks. Either fact depends on the
other; both are found together, as the least set of what diverges.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .blocks import BRANCHES, LEAVING, Block
from .dataflow import CARRY, destinations, sources
from .model import Address, Immediate, Instruction, Kernel, Operand, Register, Symbol

_COMPUTING = frozenset(
    """
    mov cvt cvta selp slct setp set testp add sub mul mad fma div rem addc subc madc mul24 mad24
    sad dp2a dp4a min max abs neg copysign and or xor not cnot lop3 shl shr shf bfe bfi bfind brev
    popc clz fns bmsk szext prmt sqrt rsqrt rcp ex2 lg2 sin cos tanh
    """.split()  # noqa: SIM905 - one word a line would fill a page
)
"""Opcodes whose results depend on their operands alone."""

_UNIFORM_SPECIAL = re.compile(
    r"%(?:ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyz]"
    r"|%tid\.[yz]|%n?warpid|%gridid|%cluster_n?ctarank"
)

_THREAD = "%tid.x"
_LANE_BITS = 5
_LANES = 2**_LANE_BITS
_ALL_LANES = 2**_LANES - 1


@dataclass(frozen=True, slots=True)
class Uniformity:
    """What all lanes of a warp have in common."""

    registers: frozenset[str]
    """Registers with one value for all lanes."""
    partial: frozenset[int]
    """Blocks that some lanes may execute without the others."""
    splitting: frozenset[int]
    """Blocks whose last instruction may send lanes different ways."""


def uniformity(kernel: Kernel, blocks: Sequence[Block]) -> Uniformity:
    """What is uniform in `kernel`, a one-dimensional block of whole warps."""
    analysis = _Analysis(kernel, blocks)
    while analysis.grows():
        pass
    written = {name for instruction in kernel.body for name in destinations(instruction)}
    return Uniformity(
        registers=frozenset(written - analysis.varying),
        partial=frozenset(analysis.partial),
        splitting=frozenset(analysis.splitting),
    )


class _Analysis:
    """What is known to diverge so far."""

    def __init__(self, kernel: Kernel, blocks: Sequence[Block]) -> None:
        self._kernel = kernel
        self._blocks = blocks
        self._parameters = frozenset(parameter.name for parameter in kernel.parameters)
        copies = _copies(kernel)
        self._thread_indices = copies.get(Register(_THREAD), set()) | {_THREAD}
        self._full_masks = copies.get(Immediate(-1), set())
        self._regions = _regions(kernel, blocks)
        self.varying = _varying_special_registers(kernel)
        self.partial: set[int] = set()
        self.splitting: set[int] = set()

    def grows(self) -> bool:
        """Go through the kernel once; whether more was found to diverge."""
        before = len(self.varying), len(self.partial), len(self.splitting)
        for at, block in enumerate(self._blocks):
            code = self._kernel.body[block.start : block.stop]
            for instruction in code:
                if at in self.partial or not self._is_uniform(instruction):
                    self.varying |= destinations(instruction)
            if code[-1].opcode[0] in BRANCHES | LEAVING and self._reads_varying(code[-1]):
                self.splitting.add(at)
                self.partial |= self._regions[at]
        return before != (len(self.varying), len(self.partial), len(self.splitting))

    def _reads_varying(self, instruction: Instruction) -> bool:
        return not self.varying.isdisjoint(sources(instruction))

    def _is_uniform(self, instruction: Instruction) -> bool:
        """Whether its results are uniform, given that all lanes execute it together."""
        guard = instruction.predicate
        if guard is not None and guard.name in self.varying:
            return False
        if _drops_lane(instruction, self._thread_indices) or self._joins_lanes(instruction):
            return True
        if instruction.opcode[0] in _COMPUTING or self._is_uniform_memory(instruction):
            return not self._reads_varying(instruction)
        return False

    def _is_uniform_memory(self, instruction: Instruction) -> bool:
        """Whether it loads from parameters or constants, or waits, which always succeeds."""
        match instruction:
            case Instruction(opcode=("ld", "param", *_), operands=(_, Address(Symbol(name)))):
                return name in self._parameters
            case Instruction(opcode=("ld", "const", *_)):
                return True
            case Instruction(opcode=("mbarrier", "try_wait", *_)):
                return True
        return False

    def _joins_lanes(self, instruction: Instruction) -> bool:
        """Whether it gives all lanes one value, whatever they bring."""
        match instruction:
            case Instruction(opcode=("shfl", "sync", "idx", _), operands=(_, _, lane, limit, mask)):
                one_lane = not (isinstance(lane, Register) and lane.name in self.varying)
                return one_lane and limit == Immediate(_LANES - 1) and self._is_full(mask)
            case Instruction(opcode=("vote" | "redux", "sync", *_), operands=(*_, mask)):
                return self._is_full(mask)
        return False

    def _is_full(self, mask: Operand) -> bool:
        match mask:
            case Immediate(value):
                return value % 2**_LANES == _ALL_LANES
            case Register(name):
                return name in self._full_masks
        return False


def _varying_special_registers(kernel: Kernel) -> set[str]:
    read = {name for instruction in kernel.body for name in sources(instruction)}
    special = read - kernel.registers.keys() - {CARRY}
    return {name for name in special if not _UNIFORM_SPECIAL.fullmatch(name)}


def _drops_lane(instruction: Instruction, thread_indices: set[str]) -> bool:
    """Whether it computes with the thread's index rounded down to its warp."""
    if thread_indices.isdisjoint(sources(instruction)):
        return False
    match instruction:
        case Instruction(opcode=("shr", _), operands=(_, Register(), Immediate(shift))):
            return shift >= _LANE_BITS
        case Instruction(opcode=("and", "b32"), operands=(_, Register(), Immediate(mask))):
            return mask % _LANES == 0
        case Instruction(
            opcode=("bfe", _), operands=(_, Register(), Immediate(first), Immediate())
        ):
            return first >= _LANE_BITS
        case Instruction(
            opcode=("setp", comparison, "s32" | "u32"),
            operands=(_, Register(), Immediate(limit)),
        ):
            first_lane = {"lt": 0, "ge": 0, "gt": _LANES - 1, "le": _LANES - 1}
            return limit % _LANES == first_lane.get(comparison)
    return False


def _copies(kernel: Kernel) -> dict[Operand, set[str]]:
    """For each operand of an unguarded `mov`, the registers of which that is the one definition."""
    definitions = Counter(name for item in kernel.body for name in destinations(item))
    found: dict[Operand, set[str]] = {}
    for instruction in kernel.body:
        match instruction:
            case Instruction(opcode=("mov", _), operands=(Register(name), source), predicate=None):
                if definitions[name] == 1:
                    found.setdefault(source, set()).add(name)
    return found


def _regions(kernel: Kernel, blocks: Sequence[Block]) -> list[set[int]]:
    """For each block, the blocks from its end to where all paths from there meet again."""
    after = _post_dominators(kernel, blocks)
    return [_flood(block.successors, blocks, after[at] - {at}) for at, block in enumerate(blocks)]


def _flood(starts: Iterable[int], blocks: Sequence[Block], walls: set[int]) -> set[int]:
    """The blocks reached from `starts` without entering `walls`."""
    reached: set[int] = set()
    waiting = list(starts)
    while waiting:
        at = waiting.pop()
        if at not in reached and at not in walls:
            reached.add(at)
            waiting += blocks[at].successors
    return reached


def _post_dominators(kernel: Kernel, blocks: Sequence[Block]) -> list[set[int]]:
    """For each block, itself and the blocks on every path from it to an end of the kernel."""
    ends = _ends(kernel, blocks)
    everything = set(range(len(blocks)))
    found = [{at} if at in ends else everything for at in range(len(blocks))]
    changed = True
    while changed:
        changed = False
        for at in sorted(everything - ends, reverse=True):
            onward = {at} | set.intersection(*(found[to] for to in blocks[at].successors))
            changed = changed or onward != found[at]
            found[at] = onward
    return found


def _ends(kernel: Kernel, blocks: Sequence[Block]) -> set[int]:
    """Blocks from which a thread may leave, by a guarded exit too, and blocks of endless loops."""
    leaving = {
        at
        for at, block in enumerate(blocks)
        if not block.successors or kernel.body[block.stop - 1].opcode[0] in LEAVING
    }
    endless = {
        at for at, block in enumerate(blocks) if leaving.isdisjoint(_flood((at,), blocks, set()))
    }
    return leaving | endless
