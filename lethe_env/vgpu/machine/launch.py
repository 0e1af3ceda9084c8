"""What all threads of a launch share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..ptx.model import Kernel
from .buffer import Buffer, padded_zeros
from .cells import CellPool
from .layout import MOST_RANKS, WINDOW_BITS
from .schedule import cluster_order
from .sectors import CELL_BYTES
from .spans import SECTOR_BITS
from .values import LANES

if TYPE_CHECKING:
    from .plan import Plan
    from .program import Program


class Memory(Protocol):
    """The address space a launch runs in."""

    @property
    def table(self) -> np.ndarray:
        """Rows of `layout.Row`, uint64 `[windows, 4]`; the row is the address shifted by 40."""


class Address(Protocol):
    """An argument that is a fake address."""

    @property
    def address(self) -> int:
        """The fake address."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """An argument that is passed as bytes, in which an address lies."""

    data: bytes
    address: int
    """The fake address."""


_POOL = CellPool()

_MULTIPROCESSORS, _MOST_BLOCKS, _MOST_WARPS = 108, 32, 64
_SHARED_BYTES, _RESERVED_BYTES = 164 << 10, 1 << 10
"""Of an A100: multiprocessors, and what each holds; every block takes a kibibyte more."""
_LARGE = 1 << 31
_INDEX_BYTES = 4
"""Of a block."""
_COUNT_BYTES = 8

Argument = Address | Bytes | int | float

Cells = dict[int, tuple[int, int]]
"""By window, how many cells its granules and its sectors have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a launch is run and what is checked."""

    shared_bytes: int = 0
    """Dynamic shared memory per block."""
    seed: int | None = None
    """Blocks run in an order drawn from this seed; `None` is by their index."""
    threads: int = 1
    """Most threads of this process that share the blocks; only what is found while `races` are
    looked for can prove that they may."""
    races: bool = True
    """Report accesses of two blocks to one place that nothing orders."""
    definedness: bool = True
    """Report reads of memory that nobody has written."""
    barriers: bool = True
    """Report accesses of two warps to shared memory that no barrier separates."""
    early: bool = False
    """Units beside the warps do what they are handed over at once, not as late as they may."""
    count_memory: bool = True
    """Count bytes, sectors and bank conflicts."""
    cluster: tuple[int, int, int] | None = None
    """Blocks per cluster along x, y and z; `None` is what the kernel says, or one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The blocks that one thread of a launch begins with, and where it has its cells."""

    order: int
    """Address of the linear indices of the blocks in the order they begin, uint32."""
    blocks: int
    """How many these are."""
    next_block: Buffer
    """Position in `order` from which the next free thread takes a block, uint64 `[1]`."""
    cells: Buffer
    """Address of the cells of each window's granules, and of those of its sectors, or 0; uint64
    `[2, windows]`.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A launch, prepared; arrays are kept alive by it."""

    program: Program
    options: Options
    grid: tuple[int, int, int]
    blocks: int
    shares: tuple[Share, ...]
    """One per thread."""
    order: Buffer
    """Linear indices of all blocks in the order they begin, uint32 `[blocks]`."""
    parameters: Buffer
    cluster: tuple[int, int, int]
    """Blocks per cluster along x, y and z."""
    table: Buffer
    """See `Memory`."""
    mark_base: int
    """The number below the mark of block 0."""
    released: Buffer
    """Whether a block has released, by its mark less `mark_base`; the last entry is for several
    blocks. uint32 `[blocks + 2]`.
    """
    variables: bytes
    shared_bytes: int

    def block_name(self, linear: int) -> str:
        """The indices of a block, from its linear one."""
        x, y, _ = self.grid
        return f"({linear % x}, {linear // x % y}, {linear // x // y})"


_RESIDENT_WARPS = 4096
"""Most warps that run together, for the memory that their stacks take."""


def resident_blocks(launch: Launch) -> int:
    """Blocks of a launch that an A100 holds at once: 108 multiprocessors with 64 warps each."""
    warps = launch.program.warps
    by_memory = _SHARED_BYTES // (launch.shared_bytes + _RESERVED_BYTES)
    each = max(1, min(_MOST_BLOCKS, _MOST_WARPS // warps, by_memory))
    most = min(_MULTIPROCESSORS * each, _RESIDENT_WARPS // warps)
    return max(1, min(most, launch.blocks))


def cluster_of(
    kernel: Kernel, options: Options, grid: tuple[int, int, int]
) -> tuple[int, int, int]:
    """Blocks per cluster, as a launch and the kernel agree on them.

    Raises:
        ValueError: they do not agree, or the grid is no number of clusters.
    """
    wanted, fixed = options.cluster, kernel.cluster
    if wanted is None and fixed is None:
        if kernel.explicit_cluster:
            raise ValueError(f"{kernel.name} wants to be launched with a size of clusters")
        return (1, 1, 1)
    if wanted is not None and fixed is not None and wanted != fixed:
        raise ValueError(f"clusters of {wanted} blocks; {kernel.name} was compiled for {fixed}")
    found = wanted or fixed or (1, 1, 1)
    if any(length % size for length, size in zip(grid, found, strict=True)):
        raise ValueError(f"a grid of {grid} blocks is no number of clusters of {found}")
    if math.prod(found) > MOST_RANKS:
        raise ValueError(f"clusters of {found} blocks; at most {MOST_RANKS} run together")
    return found


@contextmanager
def prepared(
    program: Program, plan: Plan, table: np.ndarray, options: Options, threads: int = 1
) -> Iterator[Launch]:
    """Everything a launch needs before threads begin.

    Args:
        program: what is launched.
        plan: of the launch.
        table: see `Memory`.
        options: see `Program.run`.
        threads: into how many shares the blocks are divided.
    """
    blocks, cells = plan.blocks, plan.cells
    cluster = cluster_of(program.kernel, options, plan.grid)
    order = Buffer.of(cluster_order(plan.grid, cluster, options.seed))
    released = np.zeros(blocks + 2, np.uint32)
    released[-1] = 1
    counts = [sum(counts) for counts in cells.values()]
    with _POOL.lend(threads * counts, blocks) as (buffers, mark_base):
        ends = [blocks * k // threads for k in range(threads + 1)]
        own = [buffers[k * len(cells) : (k + 1) * len(cells)] for k in range(threads)]
        yield Launch(
            program=program,
            options=options,
            grid=plan.grid,
            blocks=blocks,
            shares=tuple(
                Share(
                    order=order.address + _INDEX_BYTES * start,
                    blocks=end - start,
                    next_block=Buffer.of(padded_zeros(_COUNT_BYTES).view(np.uint64)),
                    cells=_places(cells, buffers, len(table)),
                )
                for (start, end), buffers in zip(pairwise(ends), own, strict=True)
            ),
            order=order,
            parameters=plan.parameters,
            cluster=cluster,
            table=Buffer.of(table),
            mark_base=mark_base,
            released=Buffer.of(released),
            variables=program.variables,
            shared_bytes=program.static_shared_bytes + options.shared_bytes,
        )


def _places(cells: Cells, buffers: Sequence[Buffer], windows: int) -> Buffer:
    """Of cells in buffers; see `Share.cells`."""
    places = np.zeros((2, windows), np.uint64)
    for (window, (_, of_sectors)), buffer in zip(cells.items(), buffers, strict=True):
        places[0, window] = buffer.address + CELL_BYTES * of_sectors
        places[1, window] = buffer.address
    return Buffer.of(places)


def cells_wanted(program: Program, arguments: Sequence[Argument], table: np.ndarray) -> Cells:
    """Cells of granules and of sectors for each window that the kernel may write to.

    What is only read cannot race.
    """
    bits = program.granule_bits["global"]
    windows = sorted(reachable_windows(program.accessed.written, arguments, table))
    sizes = {window: int(table[window, 1]) for window in windows}
    return {
        window: ((size >> bits) + LANES, (size >> SECTOR_BITS) + LANES)
        for window, size in sizes.items()
    }


def reachable_windows(
    positions: frozenset[int] | None, arguments: Sequence[Argument], table: np.ndarray
) -> set[int]:
    """Windows that accesses may lead to: of the pointers they are computed from, or of all.

    An integer that is no small offset may lead from any pointer to any other.

    Args:
        positions: of the parameters that the addresses are computed from; `None` is unknown.
        arguments: of the launch.
        table: see `Memory`.
    """
    given = list(arguments)
    if positions is not None:
        chosen = [arguments[k] for k in sorted(positions) if k < len(arguments)]
        given = given if has_hidden_pointer(chosen) else chosen
    found = {v.address >> WINDOW_BITS for v in given if not isinstance(v, (int, float))}
    return {window for window in found if 0 < window < len(table) and table[window, 1]}


def has_hidden_pointer(arguments: Sequence[Argument]) -> bool:
    """Whether a number among the arguments is so large that it may be an address."""
    numbers = (value for value in arguments if isinstance(value, (int, float)))
    return not all(abs(value) < _LARGE for value in numbers)
