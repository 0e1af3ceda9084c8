"""Control flow of a kernel: basic blocks, loops, and what is the same in all lanes of a warp."""

from __future__ import annotations

from dataclasses import dataclass

from .blocks import BRANCHES, LEAVING, Block, Loop, blocks_and_loops
from .model import Kernel
from .uniformity import uniformity


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The control flow of one kernel.

    Blocks that cannot be reached are left out. Loops are contiguous, and every edge goes to a
    later block or back to the header of a loop around it: executed in this order with a mask of
    lanes per block, lanes meet again where their paths do.
    """

    blocks: tuple[Block, ...]
    loops: tuple[Loop, ...]
    """Outer loops before the loops in them."""
    uniform: frozenset[str]
    """Registers with the same value in all lanes of a warp; `%cc` is the carry flag."""
    partial: frozenset[int]
    """Blocks that some lanes of a warp may execute without the others."""
    divergent_branches: frozenset[int]
    """Indices of branches and exits that some lanes of a warp may take without the others:
    guards that differ between lanes, and whatever ends a block in `partial`."""


def analyse(kernel: Kernel) -> Flow:
    """The control flow of `kernel`, a one-dimensional block of whole warps.

    Raises:
        UnsupportedError: a loop with two ways in, or a branch of an unknown form.
    """
    blocks, loops = blocks_and_loops(kernel)
    result = uniformity(kernel, blocks)
    ends = {at: kernel.body[block.stop - 1] for at, block in enumerate(blocks)}
    return Flow(
        blocks=blocks,
        loops=loops,
        uniform=result.registers,
        partial=result.partial,
        divergent_branches=frozenset(
            last.index
            for at, last in ends.items()
            if last.opcode[0] in BRANCHES | LEAVING and at in result.partial | result.splitting
        ),
    )
